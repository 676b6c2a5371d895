"""The verbs of ``byteps`` on MXNet arrays, and what training with MXNet 1.9 needs besides.

    import byteps.mxnet as bps

    bps.init()
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

Pure Python over addresses: nothing here is compiled against MXNet.
"""

from __future__ import annotations

from byteps import (
    Handle,
    barrier,
    counters,
    get_pushpull_speed,
    init,
    is_initialized,
    local_rank,
    local_size,
    poll,
    rank,
    resume,
    shutdown,
    size,
    step,
    suspend,
    synchronize,
)
from byteps.mxnet.declared import byteps_declare_tensor
from byteps.mxnet.ops import broadcast, byteps_push_pull, declare, push_pull, push_pull_async
from byteps.mxnet.optimizer import DistributedOptimizer
from byteps.mxnet.parameters import broadcast_parameters
from byteps.mxnet.trainer import DistributedTrainer

__all__ = [
    "DistributedOptimizer",
    "DistributedTrainer",
    "Handle",
    "barrier",
    "broadcast",
    "broadcast_parameters",
    "byteps_declare_tensor",
    "byteps_push_pull",
    "counters",
    "declare",
    "get_pushpull_speed",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "push_pull_async",
    "rank",
    "resume",
    "shutdown",
    "size",
    "step",
    "suspend",
    "synchronize",
]
