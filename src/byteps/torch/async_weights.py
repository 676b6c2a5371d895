"""Asynchronous training: the servers hold the weights; a rank adds what its step changed and goes on.

With BYTEPS_ENABLE_ASYNC=1 nobody waits for anybody. A rank steps with its own gradients, pushes the
difference to its weights before the step, and continues with the servers' weights, which have everybody's
differences in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor

from byteps.torch.ops import push_pull_async
from byteps.torch.parameters import broadcast_tensors
from byteps.worker import current

__all__ = ["AsyncWeights"]

T = TypeVar("T")


class AsyncWeights:
    """The weights of an optimizer. Named as ``broadcast_parameters`` does, which sets what servers hold."""

    def __init__(self, named_parameters: Iterable[tuple[str, Tensor]], prefix: str = "Parameter.") -> None:
        self._prefix = prefix
        self._weights: dict[str, Tensor] = {}
        self._session: object = None  # in whose servers the weights are
        self.add(named_parameters)

    def add(self, named_parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Take more parameters, on every rank the same."""
        self._weights.update((self._prefix + name, parameter) for name, parameter in named_parameters)
        self._session = None

    def step(self, local_step: Callable[[], T]) -> T:
        """Run ``local_step`` and exchange what it changed; parameters are then the servers' weights."""
        session = current.required("step")
        if session is not self._session:
            # At the first step, not before: until then a script may load or broadcast other weights.
            broadcast_tensors({name: weight.detach() for name, weight in self._weights.items()}, root_rank=0)
            self._session = session
        weights = {name: weight.detach() for name, weight in self._weights.items() if weight.requires_grad}
        before = {name: weight.clone() for name, weight in weights.items()}
        result = local_step()
        handles = [
            push_pull_async(weight - before[name], average=False, name=name, priority=-index)
            for index, (name, weight) in enumerate(weights.items())
        ]
        with torch.no_grad():
            for parameter, handle in zip(map(self._weights.__getitem__, weights), handles, strict=True):
                parameter.copy_(handle.wait())
        return result
