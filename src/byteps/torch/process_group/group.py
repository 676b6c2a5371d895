"""The process group of the backend ``byteps``: sums, averages, broadcasts, barriers by us, the rest by Gloo.

It is a ``ProcessGroup`` and no ``Backend``, because only that can be written in Python.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from byteps.torch import ops
from byteps.torch.process_group.inner import InnerGroup
from byteps.torch.process_group.names import Names
from byteps.torch.process_group.work import HandleWork
from byteps.worker.handle import Handle
from byteps.worker.session import Session

__all__ = ["NAME", "PushPullGroup"]

NAME = "byteps"
_ReduceOp: Any = dist.ReduceOp
# C++ code that gets a Work of ours keeps only its C++ half in older versions of PyTorch. It waits for it, or
# asks for its future, soon: so a group keeps the Python halves of the last ones.
_KEEPS_PYTHON_HALF = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) >= (2, 8)
_RECENT = 0 if _KEEPS_PYTHON_HALF else 64


class PushPullGroup(InnerGroup):
    """All ranks of the job, as torch.distributed sees them. Its operations are called in one order by all."""

    def __init__(self, store: Any, rank: int, size: int, inner: Any, name: str, session: Session) -> None:
        super().__init__(store, rank, size, inner, session)
        # Errors say the name of a tensor: with that of the call a reader finds it in the script.
        calls = ("all_reduce", "broadcast", "barrier")
        self._names = {call: Names(f"torch.distributed.{name}.{call}") for call in calls}
        self._recent: deque[HandleWork] = deque(maxlen=_RECENT)

    def getBackendName(self) -> str:
        """Called by PyTorch."""
        return NAME

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Replace tensors by their sum or average over all ranks; Gloo does minimum, product and the like."""
        return self._all_reduce(_listed(tensors), opts, self._gloo.allreduce, dist.AllreduceOptions)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """The same for many tensors."""
        kind = dist.AllreduceCoalescedOptions
        return self._all_reduce(_listed(tensors), opts, self._gloo.allreduce_coalesced, kind)

    def _all_reduce(self, tensors: list[Tensor], opts: Any, inner: Any, kind: Any) -> Any:
        operation = _ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)
        average = operation == _ReduceOp.AVG
        if (average or operation == _ReduceOp.SUM) and all(map(_is_ours, tensors)):
            return self._work(tensors, [self._push_pull(tensor, average) for tensor in tensors])
        if not isinstance(opts, kind):
            opts = kind()
            opts.reduceOp = operation
        return inner(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Replace tensors by the bits of the root's; every dtype."""
        tensors = _listed(tensors)
        root = opts if isinstance(opts, int) else 0 if opts is None else opts.rootRank
        if not all(tensor.is_cpu and tensor.layout is torch.strided for tensor in tensors):
            return self._gloo.broadcast(tensors, opts)
        return self._work(tensors, [self._broadcast(tensor, root) for tensor in tensors])

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Wait until every rank is here: a sum is done when all have come."""
        token = torch.zeros(1, dtype=torch.uint8)
        return self._work([token], [self._push_pull(token, average=False, call="barrier")])

    def _push_pull(self, tensor: Tensor, average: bool, call: str = "all_reduce") -> Handle[Tensor]:
        flat, finish = _flat(tensor)
        declared = self._declared(call, flat)
        address = flat.data_ptr()
        return self._session.push_pull(declared, address, address, average, 0, flat, tensor, finish)

    def _broadcast(self, tensor: Tensor, root: int) -> Handle[Tensor]:
        flat, finish = _flat(tensor)
        if flat.dtype not in ops.NUMBERS:
            flat = flat.view(torch.uint8)
        declared = self._declared("broadcast", flat)
        return self._session.broadcast(declared, flat.data_ptr(), root, 0, flat, tensor, finish)

    def _declared(self, verb: str, flat: Tensor) -> Any:
        dtype = ops.NUMBERS[flat.dtype]
        name = self._names[verb].next(dtype, flat.numel())
        return self._session.tensor(verb, name, dtype, (flat.numel(),))

    def _work(self, tensors: list[Tensor], handles: Sequence[Handle[Any]]) -> Any:
        work = HandleWork(self._session, handles, tensors)
        self._recent.append(work)
        return work


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _is_ours(tensor: Tensor) -> bool:
    return tensor.is_cpu and tensor.layout is torch.strided and tensor.dtype in ops.NUMBERS


def _flat(tensor: Tensor) -> tuple[Tensor, Any]:
    """The tensor's elements in one row, and what is left to do when the result is there.

    A tensor of complex numbers that is still to be conjugated has gaps, so to speak: it is copied.
    """
    tensor = tensor.detach()
    plain = tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
    if plain:
        return tensor.view(-1), None
    flat = tensor.resolve_conj().resolve_neg().contiguous().view(-1)
    return flat, lambda: tensor.copy_(flat.view(tensor.shape))
