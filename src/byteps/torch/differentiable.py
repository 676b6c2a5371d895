"""``push_pull`` as a step of a computation that autograd can go back through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from byteps.torch.ops import push_pull_async

__all__ = ["push_pull"]


def push_pull(
    tensor: Tensor,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Tensor:
    """The average (or the sum) of every rank's ``tensor``, as a new tensor: see ``byteps.push_pull``.

    Differentiable: if ``tensor`` requires a gradient, so does the result. Every rank's result depends on
    every rank's tensor, so the backward pass is a push-pull too, and all ranks must run it. Averages of
    integers are rounded toward zero: pass ``average=False`` for counts, or ``tensor.float()`` for their mean.
    """
    if isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
        result: Tensor = _PushPull.apply(tensor, average, name, priority, compression_params)  # type: ignore[no-untyped-call]
        return result
    return push_pull_async(tensor, average, name, priority, compression_params).wait()


class _PushPull(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: Tensor,
        average: bool,
        name: str | None,
        priority: int,
        compression_params: Mapping[str, object] | None,
    ) -> Tensor:
        ctx.arguments = (average, name and f"{name}.gradient", priority, compression_params)
        return push_pull_async(tensor, average, name, priority, compression_params).wait()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        return push_pull(gradients[0], *ctx.arguments), None, None, None, None
