"""What scripts do to gradients between ``backward()`` and ``step()``, as people write it.

Each function is one step of a loop of training. It runs in one process on the whole batch, and on two ranks
in each way to train (gradient_ways.py): parameters must be the same (test_gradient_idioms.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from gradient_ways import ALONE, Training
from torch import nn
from torch.utils.checkpoint import checkpoint

Step = Callable[[Training, int], None]
MAX_NORM, LIMIT = 0.3, 0.01  # less than the norm and the largest value of the gradients of every step

IDIOMS: dict[str, Step] = {}
ONLY: dict[str, tuple[str, ...]] = {}  # the ways in which there is such a thing


def idiom(*ways: str) -> Callable[[Step], Step]:
    def register(step: Step) -> Step:
        IDIOMS[step.__name__] = step
        if ways:
            ONLY[step.__name__] = ways
        return step

    return register


# Clipping


@idiom()
def clip_by_norm(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    total = nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    assert total > MAX_NORM
    t.optimizer.step()


@idiom()
def clip_by_norm_with_foreach(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM, norm_type=1.0, foreach=True)
    t.optimizer.step()


@idiom()
def clip_by_value(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    nn.utils.clip_grad_value_(t.model.parameters(), LIMIT)
    t.optimizer.step()


@idiom()
def clip_in_two_parts(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    total = nn.utils.get_total_norm([p.grad for p in t.parameters if p.grad is not None])
    nn.utils.clip_grads_with_norm_(t.parameters, MAX_NORM, total)
    t.optimizer.step()


@idiom()
def clip_by_hand(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    total = sum(float(p.grad.norm()) ** 2 for p in t.parameters if p.grad is not None) ** 0.5
    for parameter in t.parameters:
        parameter.grad.data.mul_(MAX_NORM / total)  # type: ignore[union-attr]
    t.optimizer.step()


@idiom()
def clip_in_a_closure(t: Training, step: int) -> None:
    def closure() -> torch.Tensor:
        t.optimizer.zero_grad()
        loss = t.loss(step)
        loss.backward()
        nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
        return loss

    t.optimizer.step(closure)


# Arithmetic, in place and otherwise


@idiom()
def scale_in_place(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    for parameter in t.parameters:
        parameter.grad.mul_(3).div_(2).add_(parameter.detach(), alpha=0.01)  # type: ignore[union-attr]
    t.optimizer.step()


@idiom()
def scale_with_foreach(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    torch._foreach_mul_([p.grad for p in t.parameters], 0.5)  # type: ignore[arg-type]
    t.optimizer.step()


@idiom()
def assign_data(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    for parameter in t.parameters:
        parameter.grad.data = parameter.grad.data.clamp(-LIMIT, LIMIT)  # type: ignore[union-attr]
    t.optimizer.step()


@idiom()
def swap(t: Training, step: int) -> None:
    t.optimizer.zero_grad(set_to_none=step % 2 == 0)
    t.loss(step).backward()
    for parameter in t.parameters:
        parameter.grad = parameter.grad * 0.5  # type: ignore[operator]
    t.optimizer.step()


@idiom()
def delete_some(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    t.network.first.bias.grad = None
    t.network.large.weight.grad = None
    t.optimizer.step()


@idiom()
def take_away_and_put_back(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    taken = {p: p.grad for p in t.parameters}
    t.optimizer.zero_grad()
    for parameter, gradient in taken.items():
        parameter.grad = gradient * 0.5  # type: ignore[operator]
    t.optimizer.step()


@idiom()
def decide_by_what_is_read(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    largest = max(float(p.grad.abs().max()) for p in t.parameters if p.grad is not None)
    for group in t.optimizer.param_groups:
        group["lr"] = 0.1 / (1 + largest)
    t.optimizer.step()


@idiom()
def skip_a_step_that_is_not_finite(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    loss = t.loss(step)
    if step == 1:  # on rank 0 alone: the other one learns it from the gradient
        loss = loss * float("inf") if t.way == ALONE or torch.distributed.get_rank() == 0 else loss
    loss.backward()
    if all(bool(p.grad.isfinite().all()) for p in t.parameters if p.grad is not None):
        t.optimizer.step()


# Scaled losses


@idiom()
def scaler_with_clipping(t: Training, step: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    t.optimizer.zero_grad()
    scaler.scale(t.loss(step)).backward()
    scaler.unscale_(t.optimizer)
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    scaler.step(t.optimizer)
    scaler.update()


@idiom()
def scaler_alone(t: Training, step: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126 if step == 1 else 64.0)  # the second overflows
    t.optimizer.zero_grad()
    scaler.scale(t.loss(step)).backward()
    scaler.step(t.optimizer)
    scaler.update()


# Several backward passes


@idiom()
def accumulate(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    for part in range(3):
        (t.loss(step, part) / 3).backward()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom("optimizer", "cross")
def accumulate_as_told(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    if t.has_distributed_optimizer:
        t.optimizer.set_backward_passes_per_step(2)
    for part in range(2):
        (t.loss(step, part) / 2).backward()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom("ddp", "hook")
def accumulate_without_sync(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    if t.way == ALONE:
        t.loss(step, 0).backward()
    else:
        with t.model.no_sync():
            t.loss(step, 0).backward()
    t.loss(step, 1).backward()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom("optimizer", "ddp")
def two_losses_of_one_graph(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    loss = t.loss(step)
    loss.backward(retain_graph=True)
    (loss * 0.5).backward()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom("optimizer")
def losses_of_different_parameters(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    below = list(t.network.first.parameters())
    t.loss(step, 0).backward(inputs=below)
    t.loss(step, 1).backward(inputs=list(t.network.small.parameters()))
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom()
def forget_and_do_it_again(t: Training, step: int) -> None:
    t.model.zero_grad()
    t.loss(step, 0).backward()
    t.model.zero_grad(set_to_none=step % 2 == 0)
    t.loss(step, 1).backward()
    t.optimizer.step()


@idiom("cross")
def forget_and_do_it_again_across(t: Training, step: int) -> None:
    t.model.zero_grad()
    t.loss(step, 0).backward()
    t.model.zero_grad()
    t.loss(step, 1).backward()
    t.optimizer.zero_grad()
    t.loss(step, 2).backward()
    t.optimizer.step()


@idiom()
def combine_gradients_of_two_losses(t: Training, step: int) -> None:
    kept = []
    for part in range(2):
        t.optimizer.zero_grad()
        t.loss(step, part).backward()
        kept.append({p: p.grad if step % 2 else p.grad.detach() for p in t.parameters})  # type: ignore[union-attr]
    for parameter in t.parameters:
        parameter.grad = kept[0][parameter] - 0.5 * kept[1][parameter]  # type: ignore[operator]
    t.optimizer.step()


@idiom("optimizer", "ddp", "hook")
def sharpness_aware(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    total = nn.utils.get_total_norm([p.grad for p in t.parameters if p.grad is not None])
    moves = {p: p.grad * (0.05 / total) for p in t.parameters}  # type: ignore[operator]
    with torch.no_grad():
        for parameter, move in moves.items():
            parameter.add_(move)
    t.optimizer.zero_grad()
    t.loss(step).backward()
    with torch.no_grad():
        for parameter, move in moves.items():
            parameter.sub_(move)
    t.optimizer.step()


# Gradients in memory of the user


def _trainable(t: Training) -> Iterable[nn.Parameter]:
    return (each for each in t.network.parameters() if each.requires_grad and each.shape != (3, 3))


@idiom("optimizer", "ddp", "cross")
def all_gradients_in_one_flat_tensor(t: Training, step: int) -> None:
    flat: Any = getattr(t, "flat", None)
    if flat is None:
        flat = t.flat = torch.zeros(sum(each.numel() for each in _trainable(t)))  # type: ignore[attr-defined]
    if t.way == "cross":
        t.optimizer.synchronize()  # before the memory of the last step's gradients is used again
    flat.zero_()
    begin = 0
    for parameter in _trainable(t):
        parameter.grad = flat[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    t.loss(step).backward()
    if t.way == "cross":
        t.optimizer.synchronize()  # the flat tensor is no gradient that could be seen to be touched
    flat.mul_(MAX_NORM / flat.norm())
    t.optimizer.step()


@idiom("optimizer", "ddp", "hook")
def gradients_that_the_script_keeps(t: Training, step: int) -> None:
    kept: Any = getattr(t, "kept", None)
    if kept is None:
        kept = t.kept = [torch.zeros_like(each) for each in _trainable(t)]  # type: ignore[attr-defined]
        for parameter, gradient in zip(_trainable(t), kept, strict=True):
            parameter.grad = gradient
    for gradient in kept:
        gradient.zero_()
    t.loss(step).backward()
    for gradient in kept:
        gradient.clamp_(-LIMIT, LIMIT)
    t.optimizer.step()


@idiom("optimizer", "cross")
def gradients_set_by_hand(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    used = [each for each in t.network.parameters() if each.requires_grad]
    found = torch.autograd.grad(t.loss(step), used, allow_unused=True)
    for parameter, gradient in zip(used, found, strict=True):
        parameter.grad = gradient
    if t.has_distributed_optimizer:
        t.optimizer.synchronize()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom("optimizer", "cross")
def one_gradient_set_by_hand_after_the_pass(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    mine = 0.5 if t.way == ALONE else float(torch.distributed.get_rank())
    t.network.unused.weight.grad = torch.full((3, 3), mine)
    t.optimizer.step()


# Checkpointing, graphs of gradients, hooks


@idiom("optimizer", "ddp", "cross")
def checkpoints_inside_the_model(t: Training, step: int) -> None:
    _checkpointed(t, step, whole=False)


@idiom("optimizer", "cross")
def everything_in_checkpoints(t: Training, step: int) -> None:
    _checkpointed(t, step, whole=True)


def _checkpointed(t: Training, step: int, whole: bool) -> None:
    t.optimizer.zero_grad()
    network, model = t.network, t.model
    plain = type(network).forward

    def forward(inputs: torch.Tensor, branch: int) -> Any:
        inputs = inputs.requires_grad_()
        if whole:
            return checkpoint(lambda x: plain(network, x, 0), inputs, use_reentrant=True)
        inside = checkpoint(lambda x: network.norm(network.first(x)), inputs, use_reentrant=step % 2 == 0)
        hidden = checkpoint(network.large, inside.tanh(), use_reentrant=step % 2 == 0)
        return network.branches[branch](network.small(hidden))

    network.forward = forward  # type: ignore[method-assign]
    try:
        t.loss(step).backward()
    finally:
        del network.forward
    assert model is not None
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom("optimizer", "ddp", "cross")
def gradients_with_a_graph(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a cycle, which zero_grad() breaks
        t.loss(step).backward(create_graph=True)
    if t.way == ALONE:
        for parameter in t.parameters:
            parameter.grad = parameter.grad.detach()  # type: ignore[union-attr]
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


@idiom()
def a_linear_hook_on_a_parameter(t: Training, step: int) -> None:
    handle = t.network.first.weight.register_hook(lambda gradient: gradient * 0.5)
    t.optimizer.zero_grad()
    t.loss(step).backward()
    handle.remove()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()


# As users of Horovod write it


@idiom("optimizer", "cross")
def synchronize_clip_and_skip(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    t.loss(step).backward()
    if t.has_distributed_optimizer:
        t.optimizer.synchronize()
    nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    if not t.has_distributed_optimizer:
        t.optimizer.step()
    else:
        with t.optimizer.skip_synchronize():
            t.optimizer.step()


@idiom("optimizer", "cross")
def fewer_passes_than_told(t: Training, step: int) -> None:
    t.optimizer.zero_grad()
    if t.has_distributed_optimizer:
        t.optimizer.set_backward_passes_per_step(3)
    t.loss(step).backward()
    if t.has_distributed_optimizer and step > 0:
        t.optimizer.synchronize()
    if step > 0:
        nn.utils.clip_grad_norm_(t.model.parameters(), MAX_NORM)
    t.optimizer.step()
