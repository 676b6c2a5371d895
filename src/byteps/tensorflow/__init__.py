"""The verbs of ``byteps`` on TensorFlow tensors, and what training with TensorFlow needs besides.

    import byteps.tensorflow as bps

    bps.init()
    bps.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images))
        tape = bps.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

Pure Python over addresses: nothing here is compiled against TensorFlow.
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
from byteps.plugin.tensorflow.compression import Compression
from byteps.plugin.tensorflow.ops import broadcast, declare, push_pull, push_pull_async
from byteps.tensorflow.hooks import BroadcastGlobalVariablesHook
from byteps.tensorflow.optimizer import DistributedOptimizer
from byteps.tensorflow.tape import DistributedGradientTape
from byteps.tensorflow.variables import broadcast_global_variables, broadcast_variables

__all__ = [
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Handle",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
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
