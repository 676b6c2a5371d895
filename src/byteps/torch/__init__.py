"""The verbs of ``byteps`` on PyTorch tensors, and what training with PyTorch needs besides.

    import byteps.torch as bps

    bps.init()
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    handle = bps.push_pull_async_inplace(p.grad, name="Gradient.weight")
    bps.synchronize(handle)

Pure Python over addresses: nothing here is compiled against PyTorch.
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
    suspend,
    synchronize,
)
from byteps._torch_backend import register as _register
from byteps.torch.comm_hook import CommHookState, push_pull_hook
from byteps.torch.memory import empty, empty_like
from byteps.torch.ops import (
    broadcast,
    broadcast_async,
    declare,
    push_pull,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
)
from byteps.torch.parameters import broadcast_parameters

__all__ = [
    "CommHookState",
    "Handle",
    "barrier",
    "broadcast",
    "broadcast_async",
    "broadcast_parameters",
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

_register()  # init_process_group("byteps")
