"""What training with Keras 3 needs, on its TensorFlow, PyTorch and JAX backends.

    import byteps.keras as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.1 * bps.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    model.fit(..., callbacks=[bps.callbacks.BroadcastGlobalVariablesCallback(0)])

Only the framework that Keras uses is loaded. ``byteps.tensorflow.keras`` is the same module.
"""

from __future__ import annotations

from byteps import (
    barrier,
    broadcast,
    counters,
    get_pushpull_speed,
    init,
    is_initialized,
    local_rank,
    local_size,
    push_pull,
    rank,
    resume,
    shutdown,
    size,
    step,
    suspend,
)
from byteps.keras import callbacks
from byteps.keras.compression import Compression
from byteps.keras.models import load_model
from byteps.keras.optimizer import DistributedOptimizer
from byteps.keras.variables import broadcast_global_variables, broadcast_variables

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "counters",
    "get_pushpull_speed",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "push_pull",
    "rank",
    "resume",
    "shutdown",
    "size",
    "step",
    "suspend",
]
