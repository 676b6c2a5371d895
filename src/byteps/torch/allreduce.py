"""Horovod's ``allreduce`` and its relatives: push-pulls, with an operation, factors and a cast around them.

Sums and averages are push-pulls, made on the servers with one rounding. ``Min``, ``Max`` and ``Product`` are
made by each rank from all contributions, which are gathered for it: fine for metrics, and for a large tensor
as many times its bytes as there are ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from byteps.errors import ConfigError
from byteps.plugin.gather import Joint
from byteps.plugin.horovod import check_process_set
from byteps.plugin.reductions import ReduceOp, chosen
from byteps.torch import ops
from byteps.torch.collectives import allgather_async
from byteps.torch.compression import Cast, Compression
from byteps.torch.differentiable import push_pull
from byteps.worker import current
from byteps.worker.handle import Handle

__all__ = [
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
]

_VERB = "allreduce"
_OVER_RANKS: dict[ReduceOp, Callable[[Tensor], Tensor]] = {
    ReduceOp.MIN: lambda stacked: stacked.amin(0),
    ReduceOp.MAX: lambda stacked: stacked.amax(0),
    ReduceOp.PRODUCT: lambda stacked: stacked.prod(0).to(stacked.dtype),  # of integers it would be int64
}


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Cast = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Tensor:
    """What ``op`` makes of every rank's ``tensor``, as a new tensor; the average where it is not given.

        loss = hvd.allreduce(loss, name="loss")
        slowest = hvd.allreduce(seconds, op=hvd.Max)

    Differentiable for sums and averages, as ``push_pull``. ``prescale_factor`` multiplies what a rank
    contributes, ``postscale_factor`` the result.
    """
    check_process_set(_VERB, process_set)
    how = chosen(_VERB, op, average)
    wire, context = compression.compress(_scaled(tensor, prescale_factor))
    if how.is_push_pull:
        result = push_pull(wire, how is ReduceOp.AVERAGE, _named(name))
    else:
        result = _over_ranks(wire, name, how).wait()
    return _scaled(compression.decompress(result, context), postscale_factor)


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Handle[Tensor]:
    """Start ``allreduce``; ``synchronize(handle)`` gives a new tensor. Do not change the argument before."""
    check_process_set(_VERB, process_set)
    how = chosen(_VERB, op, average)
    given = _scaled(tensor, prescale_factor)
    if how.is_push_pull:
        handle = ops.push_pull_async(given.detach(), how is ReduceOp.AVERAGE, _named(name))
    else:
        handle = _over_ranks(given, name, how)
    return _then(handle, lambda result: _scaled(result, postscale_factor), postscale_factor == 1.0)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Handle[Tensor]:
    """Start ``allreduce`` whose result replaces the tensor; leave it alone before ``synchronize(handle)``."""
    check_process_set(_VERB, process_set)
    how = chosen(_VERB, op, average)
    if how.is_push_pull:
        if prescale_factor != 1.0:
            tensor.detach().copy_(_scaled(tensor.detach(), prescale_factor))
        handle = ops.push_pull_async_inplace(tensor, how is ReduceOp.AVERAGE, _named(name))
        if postscale_factor == 1.0:
            return handle
        return _then(handle, lambda _: _filled(tensor, _scaled(tensor.detach(), postscale_factor)))
    handle = _over_ranks(_scaled(tensor, prescale_factor), name, how)
    return _then(handle, lambda result: _filled(tensor, _scaled(result, postscale_factor)))


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Tensor:
    """``allreduce`` in place."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Handle[list[Tensor]]:
    """``allreduce_async`` of many tensors with one handle; its result is the list of theirs."""
    rest = (op, prescale_factor, postscale_factor, process_set)
    return grouped(allreduce_async(each, average, at, *rest) for each, at in numbered(tensors, name))


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> Handle[list[Tensor]]:
    """``allreduce_async_`` of many tensors with one handle."""
    rest = (op, prescale_factor, postscale_factor, process_set)
    return grouped(allreduce_async_(each, average, at, *rest) for each, at in numbered(tensors, name))


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Cast = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> list[Tensor]:
    """``allreduce`` of many tensors, all in flight before the first is waited for; not differentiable."""
    wire = [compression.compress(tensor) for tensor in tensors]
    rest = (op, prescale_factor, postscale_factor, process_set)
    results = grouped_allreduce_async([each for each, _ in wire], average, name, *rest).wait()
    return [
        compression.decompress(result, context) for result, (_, context) in zip(results, wire, strict=True)
    ]


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> list[Tensor]:
    """``allreduce_`` of many tensors, all in flight before the first is waited for."""
    rest = (op, prescale_factor, postscale_factor, process_set)
    return grouped_allreduce_async_(tensors, average, name, *rest).wait()


def sparse_allreduce_async(
    tensor: Tensor, name: str | None = None, op: ReduceOp | None = None, process_set: object = None
) -> Handle[Tensor]:
    """Start the sum or average of sparse tensors; the result is sparse. Rows and values are gathered.

    ``synchronize(handle)`` and ``handle()`` both give it. An index that several ranks have is in it several
    times: ``coalesce()`` adds them up.
    """
    how = chosen("sparse_allreduce", op)
    if not how.is_push_pull:
        raise ConfigError(f"sparse_allreduce: op={how.value}, expected Average or Sum")
    plain = tensor.detach()
    base = f"sparse.{name or 'noname'}"
    indices = allgather_async(plain._indices().t().contiguous(), f"{base}.indices", process_set)
    values = allgather_async(plain._values(), f"{base}.values", process_set)
    session = current.required("sparse_allreduce")
    divisor = session.size if how is ReduceOp.AVERAGE else 1

    def make(found: list[Tensor]) -> Tensor:
        return torch.sparse_coo_tensor(found[0].t(), found[1] / divisor, plain.shape, device=plain.device)

    return Joint(session, [indices, values], make)


def numbered(tensors: Sequence[Tensor], name: str | None) -> list[tuple[Tensor, str | None]]:
    """The tensors of a group, each with a name of its own if the group has one."""
    return [(tensor, name and f"{name}.{index}") for index, tensor in enumerate(tensors)]


def grouped(handles: Any) -> Handle[list[Tensor]]:
    """One handle for those of a group."""
    return Joint(current.required("grouped operation"), list(handles), list)


def _named(name: str | None) -> str | None:
    return name and f"{_VERB}.{name}"


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    """``tensor`` times ``factor``, in its own dtype; integers are multiplied in float64 and cut."""
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor * factor
    return (tensor.double() * factor).to(tensor.dtype)


def _filled(tensor: Tensor, value: Tensor) -> Tensor:
    tensor.detach().copy_(value)
    return tensor


def _then(
    handle: Handle[Tensor], make: Callable[[Tensor], Tensor], nothing_to_do: bool = False
) -> Handle[Tensor]:
    if nothing_to_do:
        return handle
    return Joint(current.required(_VERB), [handle], lambda found: make(found[0]))


def _over_ranks(tensor: Tensor, name: str | None, how: ReduceOp) -> Handle[Tensor]:
    """By each rank itself, from what all have."""
    gathered = allgather_async(tensor.detach().unsqueeze(0), _named(name))
    return _then(gathered, _OVER_RANKS[how])
