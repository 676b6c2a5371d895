"""Horovod's ``allgather`` and ``alltoall`` on tensors, made of broadcasts: no other library is needed.

    allgather       a broadcast from each rank (``byteps.plugin.gather``): no byte more than it takes
    alltoall        an allgather of which each rank keeps its part: as many times the bytes as there are ranks

Gradients are those that Horovod defines, factors included, so that a script learns the same with both.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from byteps.errors import ConfigError
from byteps.plugin.gather import Joint, gather, mark, same_everywhere, tell
from byteps.plugin.horovod import check_process_set
from byteps.torch.differentiable import push_pull
from byteps.torch.parameters import as_bytes
from byteps.worker import current
from byteps.worker.handle import Handle

__all__ = [
    "allgather",
    "allgather_async",
    "alltoall",
    "alltoall_async",
    "grouped_allgather",
    "grouped_allgather_async",
]

Splits = Tensor | Sequence[int] | None


def allgather_async(tensor: Tensor, name: str | None = None, process_set: object = None) -> Handle[Tensor]:
    """Start ``allgather``. How much each rank has is told before this returns, so all ranks must call it."""
    return _allgather(tensor, name, process_set)[0]


def _allgather(tensor: Tensor, name: str | None, process_set: object) -> tuple[Handle[Tensor], list[int]]:
    """The operation, and how many rows each rank has."""
    check_process_set("allgather", process_set)
    session = current.required("allgather")
    at = f"allgather.{name or 'noname'}"
    plain = _with_first(tensor)
    rows = tell(session, at, [plain.shape[0], mark((str(plain.dtype), tuple(plain.shape[1:])))])
    same_everywhere("allgather", at, rows, 1, "the dtype or a dimension after the first")
    firsts = [row[0] for row in rows]
    return _gathered(at, plain, firsts), firsts


def _with_first(tensor: Tensor) -> Tensor:
    """Without a graph, and with a first dimension: a single number is a row of one."""
    plain = tensor.detach()
    return plain.reshape(1) if plain.dim() == 0 else plain


def _gathered(at: str, plain: Tensor, firsts: Sequence[int]) -> Handle[Tensor]:
    """The rows of all ranks below each other, of which each has ``firsts``."""
    session = current.required("allgather")
    rest = plain.shape[1:]
    row_bytes = plain.element_size() * rest.numel()
    data = as_bytes(plain.cpu()).numpy()
    handle = gather(session, at, data, [first * row_bytes for first in firsts])

    def make(found: list[Any]) -> Tensor:
        whole = torch.from_numpy(found[0]).view(plain.dtype)
        return whole.view(sum(firsts), *rest).to(plain.device)

    return Joint(session, [handle], make)


def allgather(tensor: Tensor, name: str | None = None, process_set: object = None) -> Tensor:
    """The tensors of all ranks below each other, in rank order; the first dimension may differ.

        everybody = hvd.allgather(mine, name="predictions")

    Every dtype. Differentiable: the gradient of a rank is its part of the average of all ranks' gradients.
    """
    if tensor.requires_grad and torch.is_grad_enabled():
        result: Tensor = _AllGather.apply(tensor, name, process_set)  # type: ignore[no-untyped-call]
        return result
    return allgather_async(tensor, name, process_set).wait()


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: str | None, process_set: object) -> Tensor:
        handle, firsts = _allgather(tensor, name, process_set)
        rank = current.required("allgather").rank
        ctx.place = sum(firsts[:rank]), firsts[rank], tensor.shape
        ctx.name = name and f"allgather.{name}.gradient"
        return handle.wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        start, mine, shape = ctx.place
        average = push_pull(gradients[0].contiguous(), True, ctx.name)
        return average.narrow(0, start, mine).reshape(shape), None, None


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: object = None
) -> Handle[list[Tensor]]:
    """``allgather_async`` of many tensors with one handle; its result is the list of theirs."""
    session = current.required("grouped_allgather")
    handles = [
        allgather_async(tensor, f"{name or 'noname'}.{index}", process_set)
        for index, tensor in enumerate(tensors)
    ]
    return Joint(session, handles, list)


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: object = None
) -> list[Tensor]:
    """``allgather`` of many tensors, all in flight before the first is waited for; not differentiable."""
    return grouped_allgather_async(tensors, name, process_set).wait()


def alltoall_async(
    tensor: Tensor, splits: Splits = None, name: str | None = None, process_set: object = None
) -> Handle[Any]:
    """Start ``alltoall``. How much each rank sends to whom is told before this returns."""
    check_process_set("alltoall", process_set)
    session = current.required("alltoall")
    at = f"alltoall.{name or 'noname'}"
    plain = _with_first(tensor)
    mine = _shares(plain, splits, session.size)
    rows = tell(session, at, [*mine, mark((str(plain.dtype), tuple(plain.shape[1:])))])
    same_everywhere("alltoall", at, rows, session.size, "the dtype or a dimension after the first")
    shares = [row[: session.size] for row in rows]
    handle = _gathered(at, plain, [sum(share) for share in shares])

    def make(found: list[Tensor]) -> Any:
        starts = itertools.accumulate((sum(share) for share in shares), initial=0)
        pieces = [
            found[0].narrow(0, start + sum(share[: session.rank]), share[session.rank])
            for start, share in zip(starts, shares, strict=False)
        ]
        received = torch.tensor([share[session.rank] for share in shares], dtype=torch.int32)
        result = torch.cat(pieces)
        return result if splits is None else (result, received)

    return Joint(session, [handle], make)


def _shares(plain: Tensor, splits: Splits, size: int) -> list[int]:
    """How many rows go to each rank."""
    rows = plain.shape[0]
    if splits is None:
        if rows % size:
            raise ConfigError(
                f"alltoall: {rows} rows cannot be split evenly over {size} ranks; say how many go to each "
                "with splits="
            )
        return [rows // size] * size
    shares = [int(share) for share in splits]
    if len(shares) != size or min(shares) < 0 or sum(shares) != rows:
        raise ConfigError(
            f"alltoall: splits={shares}, expected {size} numbers of 0 or more whose sum is {rows}, the first "
            "dimension of the tensor"
        )
    return shares


def alltoall(
    tensor: Tensor, splits: Splits = None, name: str | None = None, process_set: object = None
) -> Any:
    """The rows that every rank has for this one, below each other in rank order.

        mine = hvd.alltoall(rows)                              as many to each rank
        mine, received = hvd.alltoall(rows, splits=[3, 0, 1])  3 rows to rank 0, 1 to rank 2

    With ``splits`` there is a second result: how many rows came from each rank. Differentiable: gradients
    travel back the same way.
    """
    if tensor.requires_grad and torch.is_grad_enabled():
        result, received = _AllToAll.apply(tensor, splits, name, process_set)  # type: ignore[no-untyped-call]
        return result if splits is None else (result, received)
    return alltoall_async(tensor, splits, name, process_set).wait()


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, splits: Splits, name: str | None, process_set: object
    ) -> tuple[Tensor, Tensor]:
        shares = _shares(_with_first(tensor), splits, current.required("alltoall").size)
        result, received = alltoall_async(tensor, shares, name, process_set).wait()
        ctx.back = received.tolist(), name and f"{name}.gradient", process_set
        ctx.mark_non_differentiable(received)
        return result, received

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        received, name, process_set = ctx.back
        result, _ = alltoall_async(gradients[0], received, name, process_set).wait()
        return result, None, None, None
