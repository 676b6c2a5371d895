"""What DistributedOptimizer does besides stepping: checks that run one after the other on two ranks."""

from __future__ import annotations

import contextlib
import copy
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import byteps.torch as bps
from byteps.errors import BytePSError, ConfigError, DeclarationError

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def worker(compiles: bool) -> dict[str, str]:
    """The outcome of every check, as text; ``compiles``: also of torch.compile, which is slow."""
    torch.set_num_threads(1)
    bps.init()
    outcomes = {}
    for name, run in CHECKS.items():
        if "compiled" in name and not compiles:
            continue
        bps.barrier()  # ranks enter a check together even when the last one failed on some of them
        torch.manual_seed(1)
        try:
            run()
            outcomes[name] = "ok"
        except Exception:
            outcomes[name] = traceback.format_exc()
    bps.barrier()
    return outcomes


def weight(*shape: int, value: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.full(shape or (3,), value))


def sgd(*parameters: nn.Parameter, **options: Any) -> Any:
    named = [(f"p{i}", parameter) for i, parameter in enumerate(parameters)]
    return bps.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named, **options)


@contextlib.contextmanager
def raises(kind: type[Exception], *words: str) -> Any:
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise AssertionError(f"expected {kind.__name__}")


# Gradients here are 4 ** rank: 1 and 4, so that their average is 2.5.


def mine() -> float:
    return 4.0 ** bps.rank()


@check
def a_parameter_that_one_rank_uses_gets_a_gradient_on_both() -> None:
    used, sometimes, never = weight(), weight(), weight()
    optimizer = sgd(used, sometimes, never)
    for turn in range(4):
        optimizer.zero_grad()
        loss = (used * mine()).sum()
        if bps.rank() == turn % 2:
            loss = loss + (sometimes * 4).sum()
        loss.backward()
        optimizer.step()
        assert used.grad is not None and sometimes.grad is not None and never.grad is None
        assert used.grad.tolist() == [2.5] * 3 and sometimes.grad.tolist() == [2.0] * 3
    assert used.tolist() == [-9.0] * 3 and sometimes.tolist() == [-7.0] * 3 and never.tolist() == [1.0] * 3


@check
def a_rank_without_any_gradient_does_not_make_others_wait() -> None:
    one, two = weight(), weight(2, 2)
    optimizer = sgd(one, two)
    if bps.rank() == 0:
        (one.sum() + two.sum()).backward()
    optimizer.step()
    assert one.tolist() == [0.5] * 3 and two.tolist() == [[0.5, 0.5]] * 2


@check
def a_frozen_parameter_takes_part_once_it_is_not() -> None:
    one, frozen = weight(), weight()
    frozen.requires_grad_(False)
    optimizer = sgd(one, frozen)
    for step in range(3):
        optimizer.zero_grad()
        ((one + frozen) * mine()).sum().backward()
        optimizer.step()
        if step == 0:
            assert frozen.grad is None
            frozen.requires_grad_(True)
        else:
            assert frozen.grad is not None and frozen.grad.tolist() == [2.5] * 3


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
def sparse_gradients_are_made_dense_with_one_warning() -> None:
    tables = nn.Embedding(5, 2, sparse=True), nn.Embedding(4, 2, sparse=True)
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD([table.weight for table in tables], lr=1.0),
        [("a", tables[0].weight), ("b", tables[1].weight)],
    )
    before = tables[0].weight.detach().clone()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sum(table(torch.tensor([bps.rank(), 3])).sum() for table in tables).backward()
        optimizer.step()
    assert len([each for each in caught if "sparse" in str(each.message)]) == 1
    assert (before - tables[0].weight)[:, 0].tolist() == [0.5, 0.5, 0.0, 1.0, 0.0]
    with raises(ConfigError, "SparseAdam", "dense"):
        bps.DistributedOptimizer(torch.optim.SparseAdam(tables[0].parameters()))


@check
def two_optimizers_with_the_same_names_do_not_mix() -> None:
    first, second = weight(3), weight(5)
    optimizers = sgd(first), sgd(second)
    (first * mine()).sum().backward()
    (second * mine() * 2).sum().backward()
    for optimizer in reversed(optimizers):
        optimizer.step()
    assert first.tolist() == [-1.5] * 3 and second.tolist() == [-4.0] * 5


@check
def half_gradients_and_casts() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        one = nn.Parameter(torch.ones(3, dtype=dtype))
        optimizer = sgd(one, compression=bps.Compression.fp16)
        for _ in range(2):
            optimizer.zero_grad()
            (one * mine()).sum().backward()
            optimizer.step()
            assert one.grad is not None and one.grad.dtype is dtype and one.grad.tolist() == [2.5] * 3
    one = weight()
    optimizer = sgd(one, compression=bps.Compression.fp16)
    (one * (1 + 2**-12)).sum().backward()
    optimizer.step()
    assert one.grad is not None and one.grad.tolist() == [1.0] * 3  # it did travel in half precision


@check
def strange_gradients_arrive() -> None:
    permuted = nn.Parameter(torch.ones(2, 3, 4).permute(2, 0, 1))
    gaps = nn.Parameter(torch.ones(4, 6)[:, ::2])
    empty = nn.Parameter(torch.empty(0, 3))
    scalar = nn.Parameter(torch.tensor(1.0))
    parameters = permuted, gaps, empty, scalar
    optimizer = sgd(*parameters)
    for _ in range(2):
        optimizer.zero_grad()
        factor = torch.arange(24.0).reshape(4, 2, 3)
        loss = (permuted * factor).sum() + (gaps.t() * factor.reshape(6, 4)[:3]).sum() + empty.sum() + scalar
        (loss * mine()).backward(create_graph=True)
        optimizer.step()
        assert permuted.grad is not None and gaps.grad is not None and scalar.grad is not None
        assert torch.equal(permuted.grad, factor * 2.5) and torch.equal(
            gaps.grad, factor.reshape(6, 4)[:3].t() * 2.5
        )
        assert scalar.grad.item() == 2.5 and not permuted.grad.requires_grad


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


@check
def push_pull_can_be_differentiated() -> None:
    for average in (True, False):
        tensor = torch.full((2, 3), mine(), requires_grad=True)
        out = bps.push_pull(tensor, average=average, name=f"differentiable {average}")
        (out * mine()).sum().backward()
        assert out.tolist() == tensor.grad.tolist() == [[2.5 if average else 5.0] * 3] * 2  # type: ignore[union-attr]
    with torch.no_grad():
        assert not bps.push_pull(tensor, name="plain").requires_grad
    handle = bps.byteps_push_pull(torch.full((2,), mine()), average=False, name="old name")
    assert bps.synchronize(handle).tolist() == [5.0, 5.0]
