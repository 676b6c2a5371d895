"""What the core needs to know of an optimizer: learning rate, momentum and weight decay of each parameter.

They are read whenever a gradient is pushed, because schedulers change them. With ``momentum`` in
``compression_params`` the core applies momentum, so the optimizer must not do it again: its groups keep their
numbers, which schedulers and ``state_dict()`` see, and only the step itself is done without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from byteps.compress.params import CodecSpec
from byteps.errors import ConfigError

__all__ = ["Rate", "Rates", "momentum_taken_out", "without_momentum"]

_MOVED = {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}  # what a step does not do


class Rate(NamedTuple):
    """Of one parameter, now."""

    lr: float
    mu: float
    decay: float  # to be added to the gradient, times the parameter


class Rates:
    """The rates of an optimizer's parameters. ``moves_momentum``: that and weight decay are the core's."""

    def __init__(self, optimizer: torch.optim.Optimizer, codec: str) -> None:
        self._optimizer = optimizer
        self._group_of: dict[Tensor, int] = {}
        self.moves_momentum = CodecSpec.from_text(codec).momentum is not None
        if self.moves_momentum:
            _check(optimizer)

    def of(self, parameter: Tensor) -> Rate:
        groups = self._optimizer.param_groups
        index = self._group_of.get(parameter)
        if index is None:
            for number, group in enumerate(groups):
                self._group_of.update((each, number) for each in group["params"])
            index = self._group_of[parameter]
        group = groups[index]
        lr = float(group.get("lr", 0.0))
        if not self.moves_momentum:
            return Rate(lr, 0.0, 0.0)
        decay = float(group["weight_decay"])
        return Rate(lr, float(group["momentum"]), -decay if group.get("maximize") else decay)


def _check(optimizer: torch.optim.Optimizer) -> None:
    """Momentum can be moved out of SGD; other optimizers have none, or mean something else by it."""
    groups = optimizer.param_groups
    if not isinstance(optimizer, torch.optim.SGD):
        raise ConfigError(
            f"compression_params['momentum'] = 'nesterov': {type(optimizer).__name__} has no momentum that "
            "can be moved out of it, expected SGD; leave the key out"
        )
    if any(not group["momentum"] for group in groups):
        raise ConfigError(
            "compression_params['momentum'] = 'nesterov': the momentum of the optimizer is 0, and that is "
            "what is used; give it one, as in SGD(..., momentum=0.9)"
        )
    if any(group.get("dampening") for group in groups):
        raise ConfigError(
            "compression_params['momentum'] = 'nesterov': expected an optimizer with dampening=0"
        )


def without_momentum(group: dict[str, Any]) -> dict[str, Any]:
    """The options of a group for a step that leaves to the core what is the core's."""
    return {**group, **_MOVED}


@contextlib.contextmanager
def momentum_taken_out(groups: list[dict[str, Any]]) -> Iterator[None]:
    """Inside, the groups say that there is neither momentum nor weight decay."""
    before = [{key: group[key] for key in _MOVED} for group in groups]
    for group in groups:
        group.update(_MOVED)
    try:
        yield
    finally:
        for group, values in zip(groups, before, strict=True):
            group.update(values)
