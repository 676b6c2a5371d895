"""What Horovod's names must do on three ranks, called as its users call them (test_horovod.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import byteps.torch as hvd
from byteps.errors import ConfigError
from byteps.testing.checks import Checks

check = Checks()
RANKS = 3


def mine(rank: int | None = None) -> Tensor:
    """Rank r contributes 4^r: a sum shows who was counted, and how often."""
    return torch.full((2, 3), float(4 ** (hvd.rank() if rank is None else rank)))


def rows(rank: int) -> Tensor:
    """Another number of rows on each rank; none on rank 0."""
    return torch.arange(2 * rank * 3).reshape(2 * rank, 3) + 100 * rank


def refused(call: Callable[[], Any], *words: str) -> None:
    try:
        call()
    except ConfigError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"not refused: {words}")


@check
def allreduce_averages_by_default() -> None:
    given = mine()
    assert torch.equal(hvd.allreduce(given, name="a"), torch.full((2, 3), 21.0) / 3)
    assert torch.equal(given, mine())  # and does not change its argument
    assert torch.equal(hvd.allreduce(given, average=False), torch.full((2, 3), 21.0))
    assert torch.equal(hvd.allreduce(given, op=hvd.Sum), torch.full((2, 3), 21.0))


@check
def allreduce_of_every_operation() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8):
        given = mine().to(dtype)
        for op, value in ((hvd.Min, 1), (hvd.Max, 16), (hvd.Product, 64), (hvd.Sum, 21), (hvd.Average, 7)):
            found = hvd.allreduce(given, op=op, name=f"{op}.{dtype}")
            assert found.dtype is dtype and torch.equal(found, torch.full((2, 3), value, dtype=dtype)), op


@check
def adasum_is_refused_by_name() -> None:
    refused(lambda: hvd.allreduce(mine(), op=hvd.Adasum), "Adasum", "Average")
    refused(lambda: hvd.allreduce(mine(), average=True, op=hvd.Sum), "keep op=")
    refused(lambda: hvd.allreduce(mine(), op="sum"), "op='sum'")
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1)
    refused(lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Adasum), "DistributedOptimizer", "Adasum")
    refused(lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Min), "Min")
    refused(
        lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Sum, gradient_predivide_factor=2.0), "op=Average"
    )
    refused(lambda: hvd.DistributedOptimizer(optimizer, num_groups=-1), "num_groups")


@check
def factors_before_and_after() -> None:
    found = hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(found, torch.full((2, 3), 42.0))
    found = hvd.allreduce(mine().int(), op=hvd.Sum, prescale_factor=2, postscale_factor=0.5)
    assert torch.equal(found, torch.full((2, 3), 21, dtype=torch.int32))
    given = mine()
    handle = hvd.allreduce_async_(given, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert hvd.synchronize(handle) is given and torch.equal(given, torch.full((2, 3), 42.0))


@check
def in_place_and_asynchronous() -> None:
    for op, value in ((hvd.Sum, 21.0), (hvd.Max, 16.0)):
        given = mine()
        assert hvd.allreduce_(given, op=op) is given and torch.equal(given, torch.full((2, 3), value))
        given = mine()
        handle = hvd.allreduce_async_(given, op=op)
        found = hvd.synchronize(handle)
        assert hvd.poll(handle) and found is given and torch.equal(given, torch.full((2, 3), value))
        given = mine()
        handle = hvd.allreduce_async(given, op=op)
        assert torch.equal(hvd.synchronize(handle), torch.full((2, 3), value)) and torch.equal(given, mine())


@check
def fp16_compression_of_a_single_tensor() -> None:
    found = hvd.allreduce(mine(), compression=hvd.Compression.fp16, op=hvd.Sum)
    assert found.dtype is torch.float32 and torch.equal(found, torch.full((2, 3), 21.0))


@check
def groups_of_tensors() -> None:
    given = [mine(), mine() * 2]
    for name in (None, "group"):
        found = hvd.grouped_allreduce(given, op=hvd.Sum, name=name)
        assert [int(each[0, 0]) for each in found] == [21, 42]
    assert [int(each[0, 0]) for each in hvd.synchronize(hvd.grouped_allreduce_async(given))] == [7, 14]
    assert [int(each[0, 0]) for each in hvd.grouped_allreduce_(given, op=hvd.Max)] == [16, 32]
    assert int(given[0][0, 0]) == 16
    gathered = hvd.grouped_allgather([mine()[:1], mine()])
    assert [tuple(each.shape) for each in gathered] == [(3, 3), (6, 3)]
    scattered = hvd.grouped_reducescatter([torch.ones(3), torch.ones(6)], op=hvd.Sum)
    assert [each.tolist() for each in scattered] == [[3.0], [3.0, 3.0]]


@check
def allreduce_is_differentiable() -> None:
    given = mine().requires_grad_()
    (hvd.allreduce(given, op=hvd.Sum, prescale_factor=2.0) * (hvd.rank() + 1)).sum().backward()
    assert torch.equal(given.grad, torch.full((2, 3), 12.0))  # 2 * (1 + 2 + 3)


@check
def allgather_with_another_number_of_rows_on_each_rank() -> None:
    expected = torch.cat([rows(rank) for rank in range(RANKS)])
    for dtype in (torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.int16, torch.complex64):
        found = hvd.allgather(rows(hvd.rank()).to(dtype), name=str(dtype))
        assert found.dtype is dtype and torch.equal(found, expected.to(dtype)), dtype
    assert torch.equal(hvd.allgather(torch.tensor(hvd.rank())), torch.arange(3))  # single numbers
    strided = torch.arange(6).reshape(2, 3).t()  # not contiguous
    assert torch.equal(hvd.allgather(strided), torch.cat([strided] * 3))
    for step in range(3):  # and other numbers in each call
        count = (hvd.rank() + step) % 3
        found = hvd.allgather(torch.full((count,), hvd.rank()), name="changing")
        counts = [(rank + step) % 3 for rank in range(RANKS)]
        assert found.tolist() == [rank for rank in range(RANKS) for _ in range(counts[rank])]


@check
def allgather_refuses_what_does_not_fit_on_all_ranks() -> None:
    refused(lambda: hvd.allgather(torch.zeros(2, 3 + hvd.rank())), "rank 1", "rank 0", "first dimension")
    refused(lambda: hvd.allgather(torch.zeros(2).to([torch.int8, torch.int8, torch.int32][hvd.rank()])))
    assert len(hvd.allgather(torch.zeros(2))) == 6  # and the job goes on


@check
def allgather_is_differentiable() -> None:
    given = rows(hvd.rank()).float().requires_grad_()
    found = hvd.allgather(given, name="with gradient")
    weights = torch.arange(float(found.numel())).reshape(found.shape)
    (found * weights * (hvd.rank() + 1)).sum().backward()
    start = sum(2 * rank for rank in range(hvd.rank()))
    assert torch.equal(given.grad, weights[start : start + len(given)] * 2)  # the average of 1, 2 and 3


@check
def asynchronous_operations_end_in_any_order() -> None:
    handles = [hvd.allgather_async(mine() * k, name=f"async.{k}") for k in range(4)]
    order = range(4) if hvd.rank() else reversed(range(4))
    for k in order:
        assert torch.equal(hvd.synchronize(handles[k]), torch.cat([mine(r) * k for r in range(RANKS)]))
    same = [hvd.allgather_async(mine() * k) for k in range(3)]  # without a name
    assert [int(hvd.synchronize(each)[0, 0]) for each in same] == [0, 1, 2]


@check
def alltoall_even_and_with_splits() -> None:
    found = hvd.alltoall(torch.arange(6) + 10 * hvd.rank())
    assert found.tolist() == [10 * rank + 2 * hvd.rank() + k for rank in range(RANKS) for k in range(2)]
    # Rank r sends r + to rows to rank "to".
    splits = [hvd.rank() + to for to in range(RANKS)]
    given = torch.cat([torch.full((count, 2), 10.0 * hvd.rank() + to) for to, count in enumerate(splits)])
    for wanted in (splits, torch.tensor(splits, dtype=torch.int32)):
        found, received = hvd.alltoall(given, splits=wanted, name="splits")
        assert received.tolist() == [rank + hvd.rank() for rank in range(RANKS)]
        expected = [10.0 * rank + hvd.rank() for rank in range(RANKS) for _ in range(rank + hvd.rank())]
        assert found[:, 0].tolist() == expected
    refused(lambda: hvd.alltoall(torch.zeros(4)), "4 rows", "3 ranks", "splits=")
    refused(lambda: hvd.alltoall(torch.zeros(4), splits=[1, 1, 1]), "sum is 4")


@check
def alltoall_is_differentiable() -> None:
    given = torch.arange(6.0).requires_grad_()
    found, _ = hvd.alltoall(given, splits=[3, 2, 1])
    (found * (hvd.rank() + 1)).sum().backward()
    assert given.grad.tolist() == [1, 1, 1, 2, 2, 3]


@check
def reducescatter_even_and_uneven() -> None:
    whole = torch.arange(5.0).reshape(5, 1).repeat(1, 2)
    part = {0: whole[:2], 1: whole[2:4], 2: whole[4:]}[hvd.rank()]
    assert torch.equal(hvd.reducescatter(whole * 4 ** hvd.rank(), op=hvd.Sum), part * 21)
    assert torch.equal(hvd.reducescatter(whole * 4 ** hvd.rank()), part * 7)
    handle = hvd.reducescatter_async(whole, op=hvd.Sum, postscale_factor=2.0)
    assert torch.equal(hvd.synchronize(handle), part * 6)
    given = whole.clone().requires_grad_()
    hvd.reducescatter(given, op=hvd.Average).mul(hvd.rank() + 1).sum().backward()
    assert given.grad[:, 0].tolist() == [1, 1, 2, 2, 3]
    refused(lambda: hvd.reducescatter(torch.tensor(1.0)), "rows")
    refused(lambda: hvd.reducescatter(whole, op=hvd.Max), "Max")


@check
def sparse_tensors() -> None:
    rank = hvd.rank()
    given = torch.sparse_coo_tensor([[0, rank]], torch.tensor([1.0, 4.0**rank]), (4,))
    handle = hvd.sparse_allreduce_async(given, name="sparse", op=hvd.Sum)
    assert handle().coalesce().to_dense().tolist() == [4.0, 4.0, 16.0, 0.0]
    average = hvd.synchronize(hvd.sparse_allreduce_async(given, name="sparse", op=hvd.Average))
    assert torch.equal(average.to_dense(), torch.tensor([4.0, 4.0, 16.0, 0.0]) / 3)


@check
def broadcasts_and_objects() -> None:
    assert torch.equal(hvd.broadcast(mine(), root_rank=2), mine(2))
    given = mine()
    assert hvd.broadcast_(given, root_rank=1) is given and torch.equal(given, mine(1))
    assert torch.equal(hvd.synchronize(hvd.broadcast_async_(mine(), 0)), mine(0))
    objects = hvd.allgather_object({"rank": hvd.rank(), "data": "x" * hvd.rank()})
    assert objects == [{"rank": rank, "data": "x" * rank} for rank in range(RANKS)]
    assert hvd.broadcast_object(hvd.rank(), root_rank=1, name="o", process_set=hvd.global_process_set) == 1


@check
def process_sets_are_refused_unless_they_are_everybody() -> None:
    everybody = hvd.add_process_set(range(RANKS))
    assert torch.equal(hvd.allreduce(mine(), process_set=everybody), torch.full((2, 3), 7.0))
    assert everybody.included() and everybody.size() == RANKS and hvd.global_process_set.size() == RANKS
    refused(lambda: hvd.add_process_set([0, 1]), "new_group")
    refused(lambda: hvd.allgather(mine(), process_set=hvd.ProcessSet([0])), "ProcessSet([0])")


@check
def questions_about_the_job() -> None:
    assert hvd.size() == RANKS and 0 <= hvd.cross_rank() < hvd.cross_size()
    for name in ("mpi_built", "mpi_enabled", "mpi_threads_supported", "gloo_built", "gloo_enabled"):
        assert getattr(hvd, name)() is False
    for name in ("nccl_built", "ddl_built", "ccl_built", "cuda_built", "rocm_built"):
        assert not getattr(hvd, name)()
    refused(lambda: hvd.start_timeline("t.json"), "start_timeline", "docs/horovod.md")
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert not hasattr(hvd, "elastic")


@check
def an_optimizer_that_adds_up() -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        named_parameters=model.named_parameters(),
        op=hvd.Sum,
        num_groups=2,
    )
    model(torch.full((1, 2), float(4 ** hvd.rank()))).sum().backward()
    optimizer.step()
    assert model.weight.tolist() == [[-21.0, -21.0]]


@check
def batch_normalisation_over_all_ranks() -> None:
    """Against torch's own over the whole batch, with batches of other sizes and a large mean."""
    generator = torch.Generator().manual_seed(7)
    batches = [torch.randn(rank + 1, 4, 5, generator=generator) * 3 + 1000 for rank in range(RANKS)]
    whole = torch.cat(batches).double().requires_grad_()
    plain = nn.BatchNorm1d(4).double()
    weights = torch.randn(whole.shape, generator=generator).double()
    (plain(whole) * weights).sum().backward()
    start = sum(range(hvd.rank() + 1))
    stop = start + hvd.rank() + 1
    given = batches[hvd.rank()].double().requires_grad_()
    ours = hvd.SyncBatchNorm(4).double()
    found = ours(given)
    (found * weights[start:stop]).sum().backward()
    torch.testing.assert_close(found, plain(whole)[start:stop])
    torch.testing.assert_close(given.grad, whole.grad[start:stop])
    torch.testing.assert_close(ours.running_mean, torch.full((4,), 0.0).double() + plain_mean(batches))
    total = hvd.allreduce(ours.weight.grad, op=hvd.Sum)
    torch.testing.assert_close(total, plain.weight.grad)
    ours.eval()
    before = hvd.counters()["operations"]
    ours(given)  # talks to nobody
    assert hvd.counters()["operations"] == before


def plain_mean(batches: list[Tensor]) -> Tensor:
    once = nn.BatchNorm1d(4).double()
    once(torch.cat(batches).double())
    assert once.running_mean is not None
    return once.running_mean
