"""What DistributedOptimizer refuses or warns of."""

from __future__ import annotations

import contextlib
import warnings

import torch
from optimizer_check import check, mine, raises, sgd, weight
from torch import nn

import byteps.torch as bps
from byteps.errors import BytePSError, ConfigError, DeclarationError


@check
def passes_are_added_up_and_one_too_many_is_refused() -> None:
    one = weight()
    optimizer = sgd(one, backward_passes_per_step=2)
    for _ in range(2):
        (one * mine()).sum().backward()
    optimizer.step()
    assert one.tolist() == [-4.0] * 3
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    (one * mine()).sum().backward()
    with raises(BytePSError, "Gradient.", "p0", "1 backward pass", "backward_passes_per_step"):
        (one * mine()).sum().backward()
    optimizer.synchronize()
    optimizer.zero_grad()
    (one * mine()).sum().backward()
    optimizer.step()
    assert one.tolist() == [-6.5] * 3
    with raises(ConfigError, "0", "1 or more"):
        optimizer.set_backward_passes_per_step(0)


@check
def zero_grad_while_gradients_travel_is_refused() -> None:
    one = weight()
    optimizer = sgd(one)
    (one * mine()).sum().backward()
    for set_to_none in (True, False):
        with raises(BytePSError, "zero_grad", "p0", "step()"):
            optimizer.zero_grad(set_to_none=set_to_none)
    with raises(BytePSError, "add_param_group"):
        optimizer.add_param_group({"params": [weight()]})
    optimizer.synchronize()
    optimizer.zero_grad()
    assert one.grad is None


@check
def step_after_synchronize_warns_unless_it_is_told_to_skip() -> None:
    one = weight()
    optimizer = sgd(one)
    for skips in (True, False):
        optimizer.zero_grad()
        (one * mine()).sum().backward()
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with optimizer.skip_synchronize() if skips else contextlib.nullcontext():
                optimizer.step()
        assert [("skip_synchronize" in str(each.message)) for each in caught] == [True] * (not skips)
    assert one.tolist() == [-4.0] * 3


@check
def wrong_names_are_refused() -> None:
    one, two = weight(3), weight(4)
    with raises(ConfigError, "parameter 1 of group 0", "[4]", "named_parameters"):
        bps.DistributedOptimizer(torch.optim.SGD([one, two], lr=1.0), [("one", one)])
    with raises(ConfigError, "'same'", "[3]", "[4]"):
        bps.DistributedOptimizer(torch.optim.SGD([one, two], lr=1.0), [("same", one), ("same", two)])
    with raises(ConfigError, "Parameter", "model.named_parameters()"):
        bps.DistributedOptimizer(torch.optim.SGD([one], lr=1.0), [one])  # type: ignore[list-item]
    with raises(ConfigError, "already"):
        bps.DistributedOptimizer(sgd(one))
    with raises(TypeError, "device meta", "Gradient."):
        sgd(nn.Parameter(torch.empty(3, device="meta")))


@check
def models_that_differ_are_named_on_every_rank() -> None:
    with raises(DeclarationError, "p1", "[4]", "[5]", "worker 0", "worker 1"):
        sgd(weight(3), weight(4 + bps.rank()))
    with raises(DeclarationError, "used parameters", "[1]", "[2]"):
        sgd(*(weight() for _ in range(1 + bps.rank())))
