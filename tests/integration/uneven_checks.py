"""What uneven data must give on three ranks; each check runs on all of them at once (test_uneven.py).

Rank r has COUNTS[r] batches. The oracle is exact: in step s the average is over the ranks that have a batch
s, their contributions added in rank order and divided once.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import byteps
import byteps.torch as bps
from byteps.errors import ConfigError
from byteps.testing.checks import Checks
from byteps.torch.parallel import DistributedDataParallel

check = Checks()
COUNTS = (3, 5, 2)  # the last with data is rank 1, which ends alone
RANKS = len(COUNTS)


def with_data(step: int) -> list[int]:
    return [rank for rank in range(RANKS) if step < COUNTS[rank]]


def batch(rank: int, step: int) -> Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * step + rank))


def same_bits(found: Tensor, expected: Tensor) -> None:
    assert found.dtype is expected.dtype
    found, expected = found.reshape(-1), expected.reshape(-1)
    assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8)), (found, expected)


def average(parts: list[Tensor]) -> Tensor:
    """As the core makes it: half types in float32, one division, one rounding; integers toward zero."""
    dtype = parts[0].dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    total = parts[0].to(wide)
    for part in parts[1:]:
        total = total + part.to(wide)
    if dtype.is_floating_point:
        return (total / len(parts)).to(dtype)
    return torch.div(total, len(parts), rounding_mode="trunc")


@check
def averages_are_over_those_who_have_data() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int8):
        with bps.join_context():
            for step in range(COUNTS[bps.rank()]):
                parts = [(batch(rank, step) * 50).to(dtype) for rank in with_data(step)]
                given = parts[with_data(step).index(bps.rank())].clone()
                name = f"average {dtype}"
                if step % 2:
                    found = bps.push_pull_inplace(given, name=name)
                else:
                    found = bps.push_pull(given, name=name)
                same_bits(found, average(parts))


@check
def sums_show_who_was_counted() -> None:
    with bps.join_context():
        for step in range(COUNTS[bps.rank()]):
            total = bps.push_pull(torch.full((1000,), 4.0 ** bps.rank()), average=False, name="sum")
            assert total.unique().tolist() == [sum(4.0**rank for rank in with_data(step))]


@check
def a_sum_of_minus_zero_stays_minus_zero() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        with bps.join_context():
            for _ in range(COUNTS[bps.rank()]):
                zeros = torch.full((8,), -0.0, dtype=dtype)
                same_bits(bps.push_pull(zeros, name=f"zero {dtype}"), zeros)
                same_bits(bps.push_pull(zeros, average=False, name=f"zero sum {dtype}"), zeros)


@check
def numpy_arrays_and_the_last_rank() -> None:
    with byteps.join_context():
        for step in range(COUNTS[byteps.rank()]):
            given = np.full(10, 4.0 ** byteps.rank())
            parts = [4.0**rank for rank in with_data(step)]
            assert byteps.push_pull(given, name="numpy").tolist() == [sum(parts) / len(parts)] * 10
        assert byteps.join() == 1  # rank 1 had most
    total = byteps.push_pull(np.ones(3), average=False, name="after")  # and all ranks are there again
    assert total.tolist() == [3.0] * 3


@check
def all_out_of_data_at_once() -> None:
    with bps.join_context():
        same_bits(bps.push_pull(torch.ones(3), average=False, name="once"), torch.full((3,), 3.0))
        assert bps.join() == RANKS - 1


@check
def several_operations_under_way() -> None:
    with bps.join_context():
        for step in range(COUNTS[bps.rank()]):
            handles = [
                bps.push_pull_async(torch.full((100,), 4.0 ** bps.rank() * k), False, f"async {k}")
                for k in range(4)
            ]
            for k in reversed(range(4)):
                expected = sum(4.0**rank * k for rank in with_data(step))
                assert bps.synchronize(handles[k]).unique().tolist() == [expected]
            bps.barrier()


@check
def broadcasts_come_from_who_has_data() -> None:
    with bps.join_context():
        for step in range(COUNTS[bps.rank()]):
            found = bps.broadcast(torch.full((5,), float(bps.rank())), root_rank=1, name="from 1")
            assert found.tolist() == [1.0] * 5
            if step == 3:  # rank 1 is alone, and rank 0 is out of data
                try:
                    bps.broadcast(torch.zeros(5), root_rank=0, name="from 0")
                except ConfigError as error:
                    assert "rank 0, its root, is out of data" in str(error)
                else:
                    raise AssertionError("not refused")


def network(seed: int = 1, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6) if norm else nn.Tanh(), nn.Linear(6, 3))


def loss_of(model: nn.Module, rank: int, step: int) -> Tensor:
    loss: Tensor = model(batch(rank, step)).square().sum()
    return loss


def expected_gradients(model: nn.Module, step: int) -> list[Tensor]:
    found = []
    for rank in with_data(step):
        mine = copy.deepcopy(model)
        mine.zero_grad()
        loss_of(mine, rank, step).backward()
        found.append([parameter.grad for parameter in mine.parameters()])
    return [average(list(parts)) for parts in zip(*found, strict=True)]  # type: ignore[arg-type]


def trained_with(make: Any, **options: Any) -> None:
    """Every step has the exact gradients, and all ranks end with the same parameters."""
    model = network(seed=bps.rank())
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    wrapped, optimizer = make(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), **options)
    with bps.join_context(model, optimizer):
        for step in range(COUNTS[bps.rank()]):
            expected = expected_gradients(model, step)
            optimizer.zero_grad()
            loss_of(wrapped, bps.rank(), step).backward()
            for parameter, gradient in zip(model.parameters(), expected, strict=True):
                same_bits(parameter.grad, gradient)  # type: ignore[arg-type]
            optimizer.step()
    for name, value in model.state_dict().items():
        same_bits(value, bps.broadcast(value.clone(), 1, f"compare {name}"))
    momentum = optimizer.state[next(model.parameters())]["momentum_buffer"]
    same_bits(momentum, bps.broadcast(momentum.clone(), 1, "compare momentum"))


def distributed(model: nn.Module, optimizer: Any, **options: Any) -> tuple[nn.Module, Any]:
    return model, bps.DistributedOptimizer(optimizer, model.named_parameters(), **options)


@check
def a_distributed_optimizer() -> None:
    trained_with(distributed)


@check
def our_distributed_data_parallel() -> None:
    trained_with(lambda model, optimizer: (DistributedDataParallel(model), optimizer))


@check
def buffers_come_from_the_lowest_rank_with_data() -> None:
    model = DistributedDataParallel(network(norm=True))
    with bps.join_context(model):
        for step in range(COUNTS[bps.rank()]):
            before = model.module[1].num_batches_tracked.item()
            assert before == step
            loss_of(model, bps.rank(), step).backward()
    assert model.module[1].num_batches_tracked.item() == max(COUNTS)


@check
def a_parameter_that_only_some_used() -> None:
    model = nn.ModuleList([nn.Linear(5, 1), nn.Linear(5, 1)])
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    with bps.join_context(model, optimizer):
        for step in range(COUNTS[bps.rank()]):
            optimizer.zero_grad()
            which = model[bps.rank() % 2]
            which(batch(bps.rank(), step)).sum().backward()
            used = {rank % 2 for rank in with_data(step)}
            assert [model[k].bias.grad is not None for k in range(2)] == [k in used for k in range(2)]
            optimizer.step()


@check
def metrics_between_steps() -> None:
    model = network()
    _, optimizer = distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with bps.join_context(model):
        for step in range(COUNTS[bps.rank()]):
            optimizer.zero_grad()
            loss_of(model, bps.rank(), step).backward()
            optimizer.step()
            mean = bps.allreduce(torch.tensor(4.0 ** bps.rank()), name="metric")
            parts = [4.0**rank for rank in with_data(step)]
            same_bits(mean, torch.tensor(sum(parts)) / len(parts))


@check
def a_compressed_tensor_is_exact_while_somebody_is_out_of_data() -> None:
    params = {"compressor": "onebit", "scaling": True, "ef": "vanilla"}
    with bps.join_context():
        for step in range(COUNTS[bps.rank()]):
            parts = [batch(rank, step).repeat(4000, 1) for rank in with_data(step)]
            given = parts[with_data(step).index(bps.rank())]
            found = bps.push_pull(given, name="compressed", compression_params=params)
            if len(parts) < RANKS:
                same_bits(found, average(parts))


@check
def momentum_in_the_core_is_refused() -> None:
    model = network()
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model.named_parameters(),
        compression_params={"compressor": "onebit", "momentum": "nesterov"},
    )
    try:
        with bps.join_context(model):
            loss_of(model, bps.rank(), 0).backward()
    except ConfigError as error:
        assert "momentum in compression_params" in str(error)
    else:
        raise AssertionError("not refused")
    del optimizer


@check
def join_where_nobody_expects_it_is_refused() -> None:
    try:
        bps.join()
    except ConfigError as error:
        assert "join_context()" in str(error) and "BYTEPS_JOIN=1" in str(error)
    else:
        raise AssertionError("not refused")
