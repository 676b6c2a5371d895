"""DistributedOptimizer with what people use beside it: scalers, schedulers, checkpoints, compilers."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from optimizer_check import check, mine, sgd, weight
from torch import nn

import byteps.torch as bps


@check
def scalers_and_whoever_reads_param_groups_see_all_ranks_gradients() -> None:
    one, two = weight(), weight()
    optimizer = sgd(one, two)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)
    for broken in (False, True, False):
        optimizer.zero_grad()
        loss = (one * mine()).sum()
        if bps.rank() == 0:  # the other rank learns only from the exchange that this one overflows
            loss = loss + (two * (float("inf") if broken else 2.0)).sum()
        scaler.scale(loss).backward()
        before = one.tolist(), two.tolist()
        scaler.step(optimizer)
        scaler.update()
        assert ((one.tolist(), two.tolist()) == before) == broken
    assert scaler.get_scale() == 4.0
    assert one.tolist() == [-4.0] * 3 and two.tolist() == [-1.0] * 3
    (one * mine()).sum().backward()
    groups = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    assert groups[0].tolist() == [5.0] * 3  # 2.5 of the last step and of this one
    optimizer.step()
    assert one.tolist() == [-9.0] * 3


@check
def clipping_with_a_scaler() -> None:
    one = weight()
    optimizer = sgd(one)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((one * mine()).sum()).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_value_([one], 2.0)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    assert one.tolist() == [-1.0] * 3


@check
def schedulers_made_before_and_after_work_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for before in (True, False):
            one = weight()
            plain = torch.optim.SGD([one], lr=1.0)
            if before:
                scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
            optimizer = bps.DistributedOptimizer(plain, [("p", one)])
            if not before:
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            assert optimizer is plain and isinstance(optimizer, torch.optim.SGD)
            for _ in range(2):
                optimizer.zero_grad()
                (one * mine()).sum().backward()
                optimizer.step()
                scheduler.step()
            assert one.tolist() == [1 - 2.5 - 1.25] * 3


@check
def groups_can_be_added_and_state_goes_round() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = bps.DistributedOptimizer(
        torch.optim.Adam(model[0].parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    optimizer.add_param_group({"params": list(model[1].parameters()), "lr": 0.01})
    extra = weight()
    optimizer.add_param_group({"params": [extra]})
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    saved: Any = None
    for step in range(3):
        if step == 1:
            saved = copy.deepcopy(optimizer.state_dict())
        optimizer.zero_grad()
        (model(torch.full((2, 3), mine())).sum() + extra.sum() * mine()).backward()
        optimizer.step()
    optimizer.load_state_dict(saved)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01, 0.1]
    assert int(optimizer.state[extra]["step"]) == 1
    optimizer.zero_grad()
    (model(torch.ones(2, 3)).sum() + extra.sum()).backward()
    optimizer.step()
    assert len(calls) == 4  # once for each step, also after load_state_dict
    copied = copy.deepcopy(optimizer)  # an ordinary optimizer of its own parameters
    assert (
        type(copied) is torch.optim.Adam
        and int(copied.state[copied.param_groups[2]["params"][0]]["step"]) == 2
    )
    for tensor in (*model.parameters(), extra):
        assert torch.equal(bps.broadcast(tensor.detach().clone(), 0, "same"), tensor)


@check
def compiled_models_train() -> None:
    model = nn.Linear(3, 2)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=compiled.named_parameters()
    )
    before = model.bias.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        (compiled(torch.ones(1, 3)).sum() * mine()).backward()
        optimizer.step()
    assert torch.allclose(before - model.bias, torch.tensor([5.0, 5.0]), atol=1e-5)
