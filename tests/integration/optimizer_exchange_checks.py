"""When DistributedOptimizer exchanges gradients, and what it refuses to do to them, each with its remedy."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import torch
from optimizer_check import check, mine, raises, sgd, weight
from torch import nn
from torch.utils.checkpoint import checkpoint

import byteps.torch as bps
from byteps.errors import BytePSError, ConfigError
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel


def codec_sgd(*parameters: nn.Parameter) -> Any:
    """With momentum in the core; names of their own, because codecs belong to names."""
    return bps.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0, momentum=0.5, nesterov=True),
        [(f"momentum.{i}", each) for i, each in enumerate(parameters)],
        compression_params={"momentum": "nesterov"},
    )


# Passes


@check
def passes_are_added_up_and_each_further_one_too() -> None:
    one = weight()
    optimizer = sgd(one, backward_passes_per_step=2)
    for number in range(2):
        (one * mine()).sum().backward()
        assert one.grad is not None and one.grad.tolist() == [[mine()] * 3, [5.0] * 3][number]
    optimizer.step()
    assert one.tolist() == [-4.0] * 3
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    before = bps.counters()["operations"]
    for number in range(1, 4):
        (one * mine()).sum().backward()
        assert one.grad is not None and one.grad.tolist() == [2.5 * number] * 3
    assert bps.counters()["operations"] == before + 6  # the gradient and the roll call, three times
    optimizer.step()
    assert one.tolist() == [-11.5] * 3
    with raises(ConfigError, "0", "1 or more"):
        optimizer.set_backward_passes_per_step(0)


@check
def a_change_before_the_exchange_is_refused() -> None:
    one, two = weight(), weight()
    optimizer = sgd(one, two, backward_passes_per_step=3)
    (one * mine()).sum().backward()
    nn.utils.clip_grad_norm_([one, two], 1.0)
    with raises(BytePSError, "p0", "3", "backward_passes_per_step", "optimizer.synchronize()"):
        optimizer.step()
    optimizer.synchronize()  # what is there, clipped by each rank for itself: it was asked for
    optimizer.zero_grad()
    (one * mine()).sum().backward()
    optimizer.synchronize()
    nn.utils.clip_grad_value_([one, two], 2.0)
    optimizer.step()
    assert one.tolist() == [-1.0] * 3


@check
def step_after_synchronize_exchanges_nothing_again() -> None:
    one = weight()
    optimizer = sgd(one)
    for skips in (True, False):
        optimizer.zero_grad()
        (one * mine()).sum().backward()
        before = bps.counters()["operations"]
        optimizer.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with optimizer.skip_synchronize() if skips else contextlib.nullcontext():
                optimizer.step()
        assert bps.counters()["operations"] == before  # backward() has done it
    assert one.tolist() == [-4.0] * 3
    optimizer.zero_grad()
    one.grad = torch.full((3,), mine())
    with (
        raises(BytePSError, "skip_synchronize()", "optimizer.synchronize()"),
        optimizer.skip_synchronize(),
    ):
        optimizer.step()
    optimizer.step()
    assert one.tolist() == [-6.5] * 3


@check
def a_step_inside_the_backward_pass() -> None:
    one, two = weight(), weight()
    optimizers = {each: sgd(each) for each in (one, two)}

    def step(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in (one, two):
        each.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        ((one + 2 * two) * mine()).sum().backward()
    assert one.tolist() == [-4.0] * 3 and two.tolist() == [-9.0] * 3


# Ranks that do not do the same


@check
def a_change_that_another_rank_cannot_make_is_refused() -> None:
    one = weight()
    optimizer = sgd(one)
    for asks in (False, True):
        optimizer.zero_grad()
        if bps.rank() == 0:
            (one * 5).sum().backward()
        elif asks:
            optimizer.synchronize()
        if asks or bps.rank() == 0:
            nn.utils.clip_grad_value_([one], 2.0)
        if not asks and bps.rank() == 0:
            with raises(BytePSError, "p0", "another rank", "synchronize()"):
                optimizer.step()
            with torch.no_grad():
                one.sub_(2.5)  # as the other rank has done
            optimizer._exchange.end_step()
        else:
            optimizer.step()
    assert one.tolist() == [-3.5] * 3


@check
def ranks_that_are_not_equally_far_are_told() -> None:
    one = weight()
    optimizer = sgd(one)
    (one * mine()).sum().backward()
    if bps.rank() == 0:
        optimizer.step()
    else:
        optimizer.zero_grad()  # because its own loss was bad, say
    with raises(BytePSError, "not equally far", "step()"):
        (one * mine()).sum().backward()


# Touched on their way


@check
def gradients_touched_in_a_hook_are_refused_by_name() -> None:
    for wrap in ("optimizer", "ddp"):
        model = nn.Linear(2, 2, bias=False)
        if wrap == "ddp":
            wrapped: Any = DistributedDataParallel(model)
        else:
            wrapped, optimizer = model, sgd(model.weight)
        handle: Any = model.weight.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1, 1))  # type: ignore[no-untyped-call]
        with raises(BytePSError, "clamp_", "Gradient.", "inside the backward pass", "register_hook()"):
            wrapped(torch.ones(1, 2)).sum().backward()
        handle.remove()
        (wrapped if wrap == "ddp" else optimizer).synchronize()  # for the pass has not come to its end
    shapes = []
    handle = model.weight.register_post_accumulate_grad_hook(lambda p: shapes.append(p.grad.shape))  # type: ignore[no-untyped-call]
    wrapped(torch.ones(1, 2)).sum().backward()  # that is no touch
    assert shapes == [(2, 2)]


@check
def what_cross_barrier_cannot_do_is_refused_by_name() -> None:
    inputs = torch.full((1, 2), mine())

    def crossing() -> tuple[nn.Module, Any, torch.Tensor]:
        """After its first step, with gradients in a flat tensor."""
        model = nn.Linear(2, 2, bias=False)
        optimizer = CrossBarrier(model, torch.optim.SGD(model.parameters(), lr=0.1))
        model(inputs).sum().backward()
        optimizer.step()
        flat = torch.zeros(4)
        model.weight.grad = flat.view(2, 2)
        return model, optimizer, flat

    model, optimizer, _ = crossing()
    loss = model(inputs).sum()
    loss.backward(retain_graph=True)
    with raises(BytePSError, "Gradient.", "CrossBarrier", "optimizer.synchronize()"):
        loss.backward()
    model, optimizer, flat = crossing()
    model(inputs).sum().backward()
    flat.mul_(2.0)  # the gradient is on its way, and not touched itself
    with raises(BytePSError, "Gradient.", "through another tensor", "optimizer.synchronize()"):
        optimizer.synchronize()
    model, optimizer, flat = crossing()
    model(inputs).sum().backward()
    optimizer.step()
    flat.zero_()  # before the next forward pass has made the update
    with raises(BytePSError, "Gradient.", "through another tensor", "optimizer.synchronize()"):
        model(inputs)
    model, optimizer, _ = crossing()
    model(inputs).sum().backward()
    kept: Any = model.weight.grad
    optimizer.step()
    kept.mul_(2.0)
    with raises(BytePSError, "Gradient.", "after step() took it", "optimizer.synchronize()"):
        model(inputs)


@check
def a_gradient_that_comes_too_late_to_be_clipped_is_refused() -> None:
    branches = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(2))
    optimizer = sgd(*branches.parameters())
    inputs = torch.ones(1, 2, requires_grad=True)
    mine_only = branches[bps.rank()]
    checkpoint(mine_only, inputs, use_reentrant=True).sum().backward()  # no end that could be seen
    with raises(BytePSError, "Gradient.", "optimizer.synchronize()", "use_reentrant=False"):
        nn.utils.clip_grad_norm_(branches.parameters(), 0.1)
    optimizer.zero_grad()
    checkpoint(mine_only, inputs, use_reentrant=True).sum().backward()
    optimizer.synchronize()
    assert all(torch.equal(each.weight.grad, torch.full((2, 2), 0.5)) for each in branches)


@check
def a_backward_pass_that_raises_ends_with_synchronize() -> None:
    one, two = weight(), weight()
    optimizer = sgd(one, two)

    def trouble(gradient: torch.Tensor) -> None:
        raise ArithmeticError("out of luck")

    if bps.rank() == 1:
        handle = one.register_hook(trouble)  # after the gradient of ``two`` is on its way
        with raises(ArithmeticError):
            ((one * two.detach()).sum() + (two * mine()).sum()).backward()
        handle.remove()
        if two.grad is not None:
            with raises(BytePSError, "zero_grad", "p1", "synchronize()"):
                optimizer.zero_grad()
        optimizer.synchronize()
    else:
        ((one * two.detach()).sum() + (two * mine()).sum()).backward()
    optimizer.zero_grad()
    ((one + two) * mine()).sum().backward()
    assert one.grad is not None and one.grad.tolist() == [2.5] * 3
    optimizer.step()


# Momentum in the core


@check
def with_momentum_in_the_core_changes_and_second_exchanges_are_refused() -> None:
    one = weight(4)
    optimizer = codec_sgd(one)
    (one * mine()).sum().backward()
    nn.utils.clip_grad_value_([one], 1.0)
    with raises(BytePSError, "momentum", "compression_params", "optimizer.synchronize()"):
        optimizer.step()
    optimizer.zero_grad()
    (one * mine()).sum().backward()
    optimizer.synchronize()
    nn.utils.clip_grad_value_([one], 1.0)  # what has momentum in it, and the script knows
    optimizer.step()
    assert one.tolist() == [0.0] * 4
    optimizer.zero_grad()
    (one * mine()).sum().backward()
    with raises(BytePSError, "second time", "backward_passes_per_step"):
        (one * mine()).sum().backward()


# Two exchanges, parameters outside


@check
def two_that_exchange_the_same_parameter_warn_and_are_right() -> None:
    model = nn.Linear(2, 2, bias=False)
    before = model.weight.detach().clone()
    ddp = DistributedDataParallel(model)
    optimizer = sgd(model.weight)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            optimizer.zero_grad()
            (ddp(torch.ones(1, 2)).sum() * mine()).backward()
            nn.utils.clip_grad_value_([model.weight], 2.0)
            optimizer.step()
    assert len([each for each in caught if "exchanged twice" in str(each.message)]) == 1
    assert torch.allclose(before - model.weight, torch.full((2, 2), 4.0))


@check
def parameters_outside_of_the_optimizer_are_named() -> None:
    inside, outside = weight(), weight()
    plain = torch.optim.SGD([inside], lr=1.0)
    optimizer = bps.DistributedOptimizer(plain, [("inside", inside), ("outside", outside)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            optimizer.zero_grad()
            ((inside + outside) * mine()).sum().backward()
            optimizer.step()
    said = [str(each.message) for each in caught if "stay with their rank" in str(each.message)]
    assert len(said) == 1 and "outside" in said[0] and "clip" in said[0]


@check
def two_optimizers_in_one_backward_pass_whatever_the_order() -> None:
    """Each rank uses other parameters of both, and meets the two in the other order."""
    for _ in range(2):
        lefts, rights = [weight(), weight()], [weight(), weight()]
        optimizers = sgd(*lefts), sgd(*rights)
        rank = bps.rank()
        for _ in range(2):
            for optimizer in optimizers:
                optimizer.zero_grad()
            parts = [(lefts[rank] * mine()).sum(), (rights[rank] * 2).sum()]
            (parts[rank] + parts[1 - rank]).backward()
            norm = nn.utils.clip_grad_norm_([*lefts, *rights], 1.0)
            assert torch.allclose(norm, torch.tensor(18.75).sqrt())  # of 0.5, 2, 1 and 1, three of each
            for optimizer in optimizers:
                optimizer.step()
        total = torch.cat([*lefts, *rights]).detach()
        assert torch.equal(total, bps.broadcast(total.clone(), 0, "two optimizers"))


@check
def compiled_clipping_of_gradients_on_their_way() -> None:
    models = [nn.Linear(2, 2, bias=False) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for model, crosses in zip(models, (False, True), strict=True):
        optimizer = sgd(model.weight)
        if crosses:
            optimizer = CrossBarrier(model, optimizer)
        halve = torch.compile(lambda gradient: gradient.mul_(0.5), backend="aot_eager")
        for _ in range(3):
            optimizer.zero_grad()
            (model(torch.ones(1, 2)).sum() * mine()).backward()
            halve(model.weight.grad)
            optimizer.step()
        optimizer.synchronize()
    assert torch.equal(models[0].weight, models[1].weight)
