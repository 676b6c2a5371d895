"""Which updates of a cross barrier are made when a layer is entered, and what runs around them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

from byteps.torch.cross_barrier import _Pending  # noqa: E402


class Exchange:
    """Gradients that come when the test says so, after ``step()`` has taken them."""

    is_exchanged = False

    def __init__(self) -> None:
        self.come: set[int] = set()
        self.waited: list[int] = []

    def is_done(self, parameter: Any) -> bool:
        return id(parameter) in self.come

    def wait(self, parameter: Any) -> None:
        self.waited.append(id(parameter))
        self.come.add(id(parameter))


def pending_of(count: int) -> tuple[_Pending, Exchange, list[nn.Parameter]]:
    """Updates of ``count`` parameters whose gradients are 1, 2, 3 ..."""
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(count)]
    optimizer: Any = torch.optim.SGD(parameters, lr=1.0)
    optimizer._plain_class, optimizer._moves_momentum = torch.optim.SGD, False
    exchange: Any = Exchange()
    pending = _Pending(optimizer, exchange)
    for index, parameter in enumerate(parameters):
        parameter.grad = torch.full((1,), index + 1.0)
    pending.take()
    return pending, exchange, parameters


def values(parameters: list[nn.Parameter]) -> list[float]:
    return [parameter.item() for parameter in parameters]


def test_a_layer_waits_for_its_own_gradient_only() -> None:
    pending, exchange, parameters = pending_of(4)
    pending.enter(parameters[1:2])
    assert exchange.waited == [id(parameters[1])]
    assert values(parameters) == [0, -2, 0, 0]


def test_what_has_come_is_updated_with_it_up_to_the_first_that_has_not() -> None:
    pending, exchange, parameters = pending_of(5)
    exchange.come = {id(parameters[index]) for index in (1, 2, 4)}
    pending.enter(parameters[:1])
    assert values(parameters) == [-1, -2, -3, 0, 0]
    pending.enter(parameters[1:2])  # is up to date
    assert values(parameters) == [-1, -2, -3, 0, 0]
    pending.enter(parameters[3:4])
    assert values(parameters) == [-1, -2, -3, -4, -5]
    pending.apply()
    assert values(parameters) == [-1, -2, -3, -4, -5]
    assert sorted(exchange.waited) == sorted(map(id, parameters))


def test_every_update_is_made_once_in_any_order_of_layers() -> None:
    pending, _, parameters = pending_of(6)
    for index in (5, 0, 3, 3, 1):
        pending.enter(parameters[index : index + 1])
    pending.apply()
    assert values(parameters) == [-1, -2, -3, -4, -5, -6]
    assert all(parameter.grad is None for parameter in parameters)


def test_hooks_of_all_optimizers_do_not_run_for_each_layer() -> None:
    pending, _, parameters = pending_of(3)
    called: list[object] = []
    hook = register_optimizer_step_post_hook(lambda *about: called.append(about))
    try:
        for parameter in parameters:
            pending.enter([parameter])
    finally:
        hook.remove()
    assert values(parameters) == [-1, -2, -3]
    assert called == []  # they run once, around the step() of the user
