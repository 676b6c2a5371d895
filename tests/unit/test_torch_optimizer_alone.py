"""DistributedOptimizer in a job of one: an ordinary optimizer with a few more methods, and no hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import byteps.torch as bps  # noqa: E402
from byteps.errors import NotInitializedError  # noqa: E402


@pytest.fixture
def job() -> Iterator[None]:
    bps.init()
    yield
    bps.shutdown()


def train(distributed: bool, kind: str, **options: Any) -> list[Any]:
    torch.manual_seed(3)
    model = torch.nn.Linear(4, 2)
    optimizer: Any = getattr(torch.optim, kind)(model.parameters(), **options)
    if distributed:
        optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        bps.broadcast_parameters(model.state_dict(), root_rank=0)
        bps.broadcast_optimizer_state(optimizer, root_rank=0)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        if kind == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            if distributed:
                optimizer.synchronize()
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
    return [p.tolist() for p in model.parameters()]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "LBFGS"])
def test_it_trains_like_the_plain_one(job: None, kind: str) -> None:
    assert train(True, kind, lr=0.1) == train(False, kind, lr=0.1)


def test_it_has_no_hooks_and_any_number_of_passes(job: None) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = bps.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    optimizer.set_backward_passes_per_step(3)
    assert not weight._post_accumulate_grad_hooks
    for _ in range(5):
        weight.sum().backward()
    optimizer.step()
    assert weight.tolist() == [-4.0, -4.0]
    assert bps.broadcast_object({"a": {1}}) == {"a": {1}}


def test_custom_optimizers_work(job: None) -> None:
    class Halving(torch.optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {})

        def step(self) -> str:  # type: ignore[override]  # without a closure
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    p.mul_(0.5)
            return "halved"

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = bps.DistributedOptimizer(Halving([weight]))
    assert isinstance(optimizer, Halving) and type(optimizer).__name__ == "Halving"
    assert optimizer.step() == "halved" and weight.tolist() == [0.5, 0.5]


def test_names_come_from_the_optimizer_or_are_numbers(job: None) -> None:
    from byteps.torch.parameter_names import ParameterNames

    one, two, three = (torch.nn.Parameter(torch.ones(i)) for i in (1, 2, 3))
    groups: list[dict[str, Any]] = [{"params": [one, two]}, {"params": [three], "param_names": ["third"]}]
    assert [name for name, _ in ParameterNames(None).of_all(groups)] == ["0.0", "0.1", "third"]
    shared = {"a": one, "b": two, "b again": two, "c": three, "not in the optimizer": torch.ones(9)}
    names = ParameterNames(shared)
    assert [name for name, _ in names.of_all(groups)] == ["a", "b", "c"]
    late = torch.nn.Parameter(torch.ones(1))
    assert [name for name, _ in names.of_group(2, {"params": [late, one]})] == ["2.0", "a"]


def test_codecs_that_do_not_exist_are_refused(job: None) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="twobit"):
        bps.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), compression_params={"compressor": "twobit"}
        )


def test_without_init_it_says_so() -> None:
    with pytest.raises(NotInitializedError, match=r"DistributedOptimizer.*byteps\.init\(\)"):
        bps.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))
