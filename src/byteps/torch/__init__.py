"""The verbs of ``byteps`` on PyTorch tensors, and what training with PyTorch needs besides.

    import byteps.torch as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)

Pure Python over addresses: nothing here is compiled against PyTorch.
"""

from __future__ import annotations

from typing import Any as _Any

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
    suspend,
    synchronize,
)
from byteps.plugin.torch_registry import make_known as _make_known
from byteps.torch.comm_hook import CommHookState, push_pull_hook
from byteps.torch.compression import Compression
from byteps.torch.differentiable import push_pull
from byteps.torch.memory import empty, empty_like
from byteps.torch.objects import broadcast_object
from byteps.torch.ops import (
    broadcast,
    broadcast_async,
    declare,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
)
from byteps.torch.ops import push_pull_async_inplace as byteps_push_pull
from byteps.torch.optimizer import DistributedOptimizer
from byteps.torch.optimizer_state import broadcast_optimizer_state
from byteps.torch.parameters import broadcast_parameters

__all__ = [
    "CommHookState",
    "Compression",
    "DistributedOptimizer",
    "Handle",
    "barrier",
    "broadcast",
    "broadcast_async",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "byteps_push_pull",
    "counters",
    "declare",
    "empty",
    "empty_like",
    "get_pushpull_speed",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_hook",
    "push_pull_inplace",
    "rank",
    "resume",
    "shutdown",
    "size",
    "suspend",
    "synchronize",
]


def _create(options: _Any, backend_options: _Any = None) -> _Any:
    from byteps.torch import process_group  # few programs make one

    return process_group.create(options, backend_options)


_make_known(_create)  # init_process_group("byteps")
