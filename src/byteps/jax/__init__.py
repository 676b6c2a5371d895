"""The verbs of ``byteps`` on JAX arrays and trees of them, and what training with JAX needs besides.

    import byteps.jax as bps

    bps.init()
    optimizer = bps.distributed(optax.sgd(0.1))
    params = bps.broadcast_parameters(params, root_rank=0)

    @jax.jit
    def step(params, state, batch):
        gradients = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

Pure Python over addresses: nothing here is compiled against JAX.
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
from byteps.jax.compression import Compression
from byteps.jax.ops import broadcast, declare, push_pull, push_pull_async
from byteps.jax.optimizer import distributed
from byteps.jax.parameters import broadcast_parameters

__all__ = [
    "Compression",
    "Handle",
    "barrier",
    "broadcast",
    "broadcast_parameters",
    "counters",
    "declare",
    "distributed",
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
