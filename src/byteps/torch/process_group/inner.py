"""A process group whose operations are all Gloo's: what ``PushPullGroup`` builds on.

Gloo is its backend for the CPU, so PyTorch would hand over to it by itself. But for a process group that is
written in Python it does so with the GIL held, and Gloo's threads need the GIL to let go of a tensor while
they hold a lock that the caller needs. So every operation is overridden, and calls Gloo without the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from byteps.torch.process_group.work import HandleWork
from byteps.worker.session import Session

__all__ = ["InnerGroup", "gloo"]

_ProcessGroup: Any = dist.ProcessGroup

# Name of the operation -> name of Gloo's; versions of PyTorch differ in what they call it.
_FORWARDED = {
    **{
        name: name
        for name in (
            *("allreduce", "allreduce_coalesced", "broadcast", "barrier", "reduce", "gather", "scatter"),
            *(
                "allgather",
                "allgather_coalesced",
                "_allgather_base",
                "reduce_scatter",
                "_reduce_scatter_base",
            ),
            *("alltoall", "alltoall_base", "send", "recv", "recv_anysource"),
        )
    },
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_to_all_single": "alltoall_base",
}
# The same for lists of outputs and of inputs, which Gloo does one by one.
_EACH = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "all_gather_single_coalesced": "_allgather_base",
    "reduce_scatter_tensor_coalesced": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "_reduce_scatter_base",
}


def gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """A Gloo backend, as torch.distributed itself makes it."""
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)


class InnerGroup(_ProcessGroup):  # type: ignore[misc]
    """See above; the operations are added below."""

    def __init__(self, store: Any, rank: int, size: int, inner: Any, session: Session) -> None:
        try:
            super().__init__(store, rank, size)
        except TypeError:  # PyTorch 2.4 and 2.5
            super().__init__(rank, size)
        self._session = session
        self._gloo = inner
        kind = _ProcessGroup.BackendType.CUSTOM
        if hasattr(self, "_set_default_backend"):
            self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, inner)


class _GlooHandle:
    """An operation of Gloo's in the words of our handles."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.wait = work.wait
        self.done = work.is_completed


def _forward(name: str) -> Callable[..., Any]:
    def operation(self: InnerGroup, *args: Any, **named: Any) -> Any:
        return getattr(self._gloo, name)(*args, **named)

    return operation


def _forward_each(name: str) -> Callable[..., Any]:
    def operation(self: InnerGroup, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        run = getattr(self._gloo, name)
        more = () if opts is None else (opts,)
        works = [_GlooHandle(run(out, into, *more)) for out, into in zip(outputs, inputs, strict=True)]
        return HandleWork(self._session, works, outputs)

    return operation


for _make, _names in ((_forward, _FORWARDED), (_forward_each, _EACH)):
    for _name, _inner_name in _names.items():
        if hasattr(_ProcessGroup, _name):
            setattr(InnerGroup, _name, _make(_inner_name))
