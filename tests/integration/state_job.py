"""Optimizer states and objects of one rank, on all: checks that run one after the other on two ranks."""

from __future__ import annotations

import fractions
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import nn

import byteps.torch as bps
from byteps.errors import ConfigError, UnsupportedTensorError


def optimizer_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """Every optimizer that this version of PyTorch has."""
    found = {name: getattr(torch.optim, name) for name in dir(torch.optim)}
    return {
        name: kind
        for name, kind in found.items()
        if isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }


def make(kind: type[torch.optim.Optimizer], seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Embedding(5, 130, sparse=kind is torch.optim.SparseAdam), nn.Linear(130, 140, bias=False)
    )
    parameters = list(model.parameters())
    if kind is torch.optim.SparseAdam:
        parameters = parameters[:1]  # it takes no dense gradients
    options: dict[str, Any] = {"lr": 0.01 * (seed + 1)}
    if kind is torch.optim.SGD:
        options["momentum"] = 0.9
    if kind is torch.optim.LBFGS:
        return model, kind(parameters, **options)  # type: ignore[call-arg]
    groups = [{"params": [each], "lr": 0.01 * (seed + number + 1)} for number, each in enumerate(parameters)]
    return model, kind(groups, **options)  # type: ignore[call-arg]


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    def closure() -> torch.Tensor:
        model.zero_grad()
        loss: torch.Tensor = model(torch.tensor([1, 3])).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]


def same(a: Any, b: Any) -> bool:
    """Equal in value and in every type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b or (a != a and b != b))


def broadcast(name: str, steps_of_root: int, steps_of_others: int, root: int) -> None:
    kind = optimizer_classes()[name]
    model, optimizer = make(kind, bps.rank() + 1)
    wanted_model, wanted = make(kind, root + 1)
    for _ in range(steps_of_root):
        step(wanted_model, wanted)
    for _ in range(steps_of_root if bps.rank() == root else steps_of_others):
        step(model, optimizer)
    bps.broadcast_parameters(model.state_dict(), root_rank=root)
    bps.broadcast_optimizer_state(optimizer, root_rank=root)
    assert same(optimizer.state_dict(), wanted.state_dict()), (optimizer.state_dict(), wanted.state_dict())
    for each in (wanted_model, wanted), (model, optimizer):
        step(*each)  # it can go on from there, and gets where the root gets
    assert same(dict(model.state_dict()), dict(wanted_model.state_dict()))


def objects() -> None:
    large = torch.arange(30_000.0)
    for root in (0, 1):
        mine = {
            "plain": [None, True, -3, 2**80, 1.5, float("nan"), float("-inf"), "text", b"bytes", ()],
            1: (1, [2, (3,)]),
            (1, "key"): OrderedDict(a=torch.tensor([1 + 2j]), b=torch.tensor(True), c=torch.zeros(0, 3)),
            "numbers": [np.float64(0.1), np.int32(7), torch.bfloat16],
            "large": [large, large.to(torch.complex64), large.short(), large.reshape(100, 300).t()],
            "twice": [large, large],
            "parameter": nn.Parameter(torch.ones(3)),
        }
        got = bps.broadcast_object(mine if bps.rank() == root else None, root, name="many")
        assert same(got, mine), got
        assert got["twice"][0] is got["twice"][1] and got["parameter"].requires_grad
        assert (got is mine) == (bps.rank() == root)
    for value in (7, fractions.Fraction(1, 3), {"set": {1, 2}}):  # the last two by pickle
        assert bps.broadcast_object(value if bps.rank() == 0 else None) == value


def refusals() -> str:
    _, optimizer = make(torch.optim.SGD, 0)
    optimizer.param_groups[1]["odd"] = {1, 2}
    try:
        bps.broadcast_optimizer_state(optimizer, root_rank=1)
    except UnsupportedTensorError as error:
        assert "optimizer['settings'][1]['odd'] is a builtins.set" in str(error), error
    else:
        raise AssertionError("a set went through")
    _, optimizer = make((torch.optim.SGD, torch.optim.Adam)[bps.rank()], 0)
    try:
        bps.broadcast_optimizer_state(optimizer, root_rank=0)
        said = ""
    except ConfigError as error:
        said = str(error)
    assert ("'Adam'" in said and "'SGD'" in said) == (bps.rank() == 1), said
    try:
        bps.broadcast_object(1, root_rank=2)
    except ConfigError as error:
        return str(error)
    return ""


def worker() -> int:
    """The number of optimizers that went well."""
    torch.set_num_threads(1)
    bps.init()
    for name in optimizer_classes():
        for steps_of_root, steps_of_others in (0, 0), (2, 0), (0, 2), (2, 1):
            try:
                broadcast(name, steps_of_root, steps_of_others, root=1)
            except Exception as error:
                raise AssertionError(f"{name} after {steps_of_root} and {steps_of_others} steps") from error
    objects()
    assert "root_rank=2" in refusals()
    bps.barrier()
    return len(optimizer_classes())
