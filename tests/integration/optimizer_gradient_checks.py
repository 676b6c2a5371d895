"""Which gradients DistributedOptimizer steps with: unused, frozen, sparse, half, and strange ones."""

from __future__ import annotations

import warnings

import torch
from optimizer_check import check, mine, raises, sgd, weight
from torch import nn

import byteps.torch as bps
from byteps.errors import ConfigError


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
