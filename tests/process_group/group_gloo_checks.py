"""What goes through the inner Gloo group, and groups of some ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from group_suite import Context, check, same

OPS = dist.ReduceOp


@check
def minimum_maximum_product_and_bits(c: Context) -> None:
    for dtype in ("float32", "int64"):
        every = torch.stack(c.every(dtype=dtype))
        for op, wanted in (
            (OPS.MIN, every.amin(0)),
            (OPS.MAX, every.amax(0)),
            (OPS.PRODUCT, every.prod(0, dtype=every.dtype)),
        ):
            tensor = c.mine(dtype=dtype)
            dist.all_reduce(tensor, op=op)
            same(tensor, wanted)
    either = torch.tensor([1 << c.rank])
    dist.all_reduce(either, op=OPS.BOR)
    assert either.item() == (1 << c.size) - 1


@check
def dtypes_that_push_pull_does_not_sum(c: Context) -> None:
    tensor = torch.complex(c.mine(), -c.mine())
    dist.all_reduce(tensor)
    same(tensor, torch.complex(c.total(), -c.total()))
    row = torch.arange(3)[None, :].float()
    sparse = torch.sparse_coo_tensor(torch.tensor([[c.rank]]), row, (c.size, 3)).coalesce()
    dist.all_reduce(sparse)
    same(sparse.to_dense(), row.repeat(c.size, 1))


@check
def reduce_to_a_root(c: Context) -> None:
    for root in range(c.size):
        tensor = c.mine()
        dist.reduce(tensor, root)
        if c.rank == root:
            same(tensor, c.total())


@check
def gathers_and_scatters(c: Context) -> None:
    parts = [torch.empty(5) for _ in range(c.size)]
    dist.all_gather(parts, c.mine())
    same(parts, c.every())
    whole = torch.empty(5 * c.size)
    dist.all_gather_into_tensor(whole, c.mine())
    same(whole, torch.cat(c.every()))
    root = c.size - 1
    parts = [torch.empty(5) for _ in range(c.size)]
    dist.gather(c.mine(), parts if c.rank == root else None, dst=root)
    if c.rank == root:
        same(parts, c.every())
    part = torch.empty(5)
    dist.scatter(part, c.every() if c.rank == root else None, src=root)
    same(part, c.mine())


@check
def reduce_scatters(c: Context) -> None:
    part = torch.empty(3)
    dist.reduce_scatter(part, list(c.mine((c.size, 3))))
    same(part, c.total((c.size, 3))[c.rank])
    part = torch.empty(3)
    dist.reduce_scatter_tensor(part, c.mine((c.size * 3,)))
    same(part, c.total((c.size * 3,))[c.rank * 3 : c.rank * 3 + 3])


@check
def many_tensors_in_one_call_of_gloo(c: Context) -> None:
    import torch.distributed._functional_collectives as functional

    world = dist.group.WORLD
    gathered = functional.all_gather_into_tensor_coalesced([c.mine(), c.mine(salt=1)], world)
    same(list(map(functional.wait_tensor, gathered)), [torch.cat(c.every(salt=salt)) for salt in (0, 1)])
    inputs = [c.mine((c.size,)), c.mine((c.size,), salt=1)]
    parts = functional.reduce_scatter_tensor_coalesced(inputs, "sum", [0, 0], world)
    wanted = [c.total((c.size,), salt=salt)[c.rank : c.rank + 1] for salt in (0, 1)]
    same(list(map(functional.wait_tensor, parts)), wanted)


@check
def all_to_all(c: Context) -> None:
    got = torch.empty(c.size)
    dist.all_to_all_single(got, torch.arange(c.size) + 10.0 * c.rank)
    same(got, torch.arange(c.size) * 10.0 + c.rank)


@check
def from_rank_to_rank(c: Context) -> None:
    after, before = (c.rank + 1) % c.size, (c.rank - 1) % c.size
    got = torch.empty(5)
    sending = dist.isend(c.mine(), after)
    dist.recv(got, before)
    sending.wait()
    same(got, c.of(before))
    got = torch.empty(5)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, c.mine(), after), dist.P2POp(dist.irecv, got, before)]
    ):
        work.wait()
    same(got, c.of(before))
    if c.rank == 0:
        got = torch.empty(5)
        assert dist.recv(got) == 1  # from anybody
        same(got, c.of(1))
    elif c.rank == 1:
        dist.send(c.mine(), 0)


@check
def objects(c: Context) -> None:
    everybody = [{"rank": rank} for rank in range(c.size)]
    got: list[object] = [None] * c.size
    dist.all_gather_object(got, {"rank": c.rank})
    assert got == everybody
    got = [None, c.rank]
    dist.broadcast_object_list(got if c.rank else ["long " * 1000, c.rank], src=0)
    got = [None]
    dist.scatter_object_list(got, everybody if c.rank == 0 else None, src=0)
    assert got == [{"rank": c.rank}]
    got = [None] * c.size
    dist.gather_object(c.rank, got if c.rank == 0 else None, dst=0)
    assert c.rank or got == list(range(c.size))


@check
def gloo_is_never_called_with_the_gil_held(c: Context) -> None:
    # A thread of Gloo that lets go of a tensor needs the GIL, and holds a lock that a caller needs.
    for turn in range(300):
        parts = [torch.empty(1) for _ in range(c.size)]
        dist.all_gather(parts, torch.full((1,), float(turn)))
        dist.send(torch.ones(1), 1) if c.rank == 0 else dist.recv(torch.empty(1), 0) if c.rank == 1 else None
        dist.reduce_scatter(torch.empty(1), parts)


@check
def groups_of_some_ranks(c: Context) -> None:
    pair = dist.new_group([0, c.size - 1])
    alone = [dist.new_group([rank]) for rank in range(c.size)][c.rank]
    if c.rank in (0, c.size - 1):
        tensor = c.mine()
        dist.all_reduce(tensor, group=pair)
        same(tensor, c.of(0) + c.of(c.size - 1))
    tensor = c.mine()
    dist.all_reduce(tensor, group=alone)
    dist.broadcast(tensor, c.rank, group=alone)
    same(tensor, c.mine())


@check
def two_groups_of_all_ranks_take_their_own_turns(c: Context) -> None:
    groups = [dist.new_group(), dist.new_group()]
    tensors = [c.mine(salt=0), c.mine(salt=1)]
    order = (0, 1) if c.rank % 2 else (1, 0)  # no order is needed between groups
    works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order]
    for work in works:
        work.wait()
    same(tensors, [c.total(salt=0), c.total(salt=1)])
