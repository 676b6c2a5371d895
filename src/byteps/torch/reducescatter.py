"""Horovod's ``reducescatter``: a push-pull of which each rank keeps its part.

The sum comes down whole, for a server answers all alike; what a rank does not keep is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from byteps.errors import ConfigError
from byteps.plugin.gather import Joint
from byteps.plugin.reductions import ReduceOp, chosen
from byteps.torch.allreduce import allreduce_async, grouped, numbered
from byteps.torch.collectives import allgather_async
from byteps.torch.compression import Cast, Compression
from byteps.worker import current
from byteps.worker.handle import Handle

__all__ = ["grouped_reducescatter", "grouped_reducescatter_async", "reducescatter", "reducescatter_async"]

_VERB = "reducescatter"


def part(rows: int, rank: int, size: int) -> tuple[int, int]:
    """First row and number of rows of a rank's part; the first ranks have one more where it does not fit.

    >>> [part(5, rank, 3) for rank in range(3)]
    [(0, 2), (2, 2), (4, 1)]
    """
    each, more = divmod(rows, size)
    return rank * each + min(rank, more), each + (rank < more)


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: object = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Tensor]:
    """Start ``reducescatter``; ``synchronize(handle)`` gives this rank's part."""
    how = chosen(_VERB, op)
    if not how.is_push_pull:
        raise ConfigError(f"{_VERB}: op={how.value}, expected Average or Sum")
    if tensor.dim() == 0:
        raise ConfigError(f"{_VERB}: a single number has no rows to share out; pass at least one dimension")
    session = current.required(_VERB)
    start, count = part(tensor.shape[0], session.rank, session.size)
    whole = allreduce_async(
        tensor, None, name and f"{_VERB}.{name}", how, prescale_factor, postscale_factor, process_set
    )
    return Joint(session, [whole], lambda found: found[0].narrow(0, start, count).clone())


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: Cast = Compression.none,
    op: ReduceOp | None = None,
    process_set: object = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """This rank's rows of the average (or with ``op=Sum`` the sum) of every rank's ``tensor``.

        mine = hvd.reducescatter(gradients, op=hvd.Sum)

    Differentiable, with the gradient that Horovod defines.
    """
    arguments = (name, op, process_set, prescale_factor, postscale_factor)
    wire, context = compression.compress(tensor)
    if wire.requires_grad and torch.is_grad_enabled():
        result: Tensor = _ReduceScatter.apply(wire, *arguments)  # type: ignore[no-untyped-call]
    else:
        result = reducescatter_async(wire, *arguments).wait()
    return compression.decompress(result, context)


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: Tensor,
        name: str | None,
        op: ReduceOp | None,
        process_set: object,
        prescale_factor: float,
        postscale_factor: float,
    ) -> Tensor:
        size = current.required(_VERB).size
        ctx.factor = prescale_factor * postscale_factor * (size if op is ReduceOp.SUM else 1)
        ctx.name = name and f"{_VERB}.{name}.gradient"
        return reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        whole = allgather_async(gradients[0].contiguous() * ctx.factor, ctx.name).wait()
        return whole, None, None, None, None, None


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: object = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[Tensor]]:
    """``reducescatter_async`` of many tensors with one handle; its result is the list of theirs."""
    rest = (op, process_set, prescale_factor, postscale_factor)
    return grouped(reducescatter_async(each, at, *rest) for each, at in numbered(tensors, name))


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: Cast = Compression.none,
    op: ReduceOp | None = None,
    process_set: object = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """``reducescatter`` of many tensors, all in flight before the first is waited for; not differentiable."""
    wire = [compression.compress(tensor) for tensor in tensors]
    rest = (op, process_set, prescale_factor, postscale_factor)
    results = grouped_reducescatter_async([each for each, _ in wire], name, *rest).wait()
    return [
        compression.decompress(result, context) for result, (_, context) in zip(results, wire, strict=True)
    ]
