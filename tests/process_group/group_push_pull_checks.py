"""What goes through push-pull: sums, averages, broadcasts, barriers, and their Work."""

from __future__ import annotations

import re

import torch
import torch.distributed as dist
from group_suite import DTYPES, Context, check, same

from byteps.errors import DeclarationError
from byteps.worker import current

SUM, AVG = dist.ReduceOp.SUM, dist.ReduceOp.AVG


@check
def sums_and_averages_of_every_dtype(c: Context) -> None:
    for dtype in DTYPES:
        tensor = c.mine((5, 7), dtype)
        dist.all_reduce(tensor)
        same(tensor, c.total((5, 7), dtype))
        tensor = c.mine((5, 7), dtype)
        dist.all_reduce(tensor, op=AVG)
        same(tensor, c.average((5, 7), dtype))


@check
def every_shape(c: Context) -> None:
    for shape in [(), (1,), (0,), (3, 0, 2), (2, 3, 5), (33, 129), (300_007,)]:
        tensor = c.mine(shape)
        dist.all_reduce(tensor)
        same(tensor, c.total(shape))


@check
def tensors_with_gaps(c: Context) -> None:
    whole = c.mine((6, 10))
    dist.all_reduce(whole[:, ::2])
    wanted = c.mine((6, 10))
    wanted[:, ::2] = c.total((6, 10))[:, ::2]
    same(whole, wanted)
    turned = c.mine((4, 6)).t()
    work = dist.all_reduce(turned, async_op=True)
    while not work.is_completed():
        work.wait()
    same(turned, c.total((4, 6)).t())


@check
def many_of_one_size_at_once(c: Context) -> None:
    tensors = [c.mine((501,), salt=i) for i in range(15)]
    works = [
        dist.all_reduce(tensor, op=AVG if i % 2 else SUM, async_op=True) for i, tensor in enumerate(tensors)
    ]
    for i in reversed(range(15)):
        assert works[i].wait()
        same(tensors[i] * c.size if i % 2 else tensors[i], c.total((501,), salt=i))


@check
def a_work_tells_its_state(c: Context) -> None:
    tensor = c.mine()
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    same(future.wait(), [c.total()])
    assert future.done() and work.is_completed() and work.is_success() and work.exception() is None
    same(work.result(), [c.total()])
    work.synchronize()
    # A callback runs when the sum is there, in whatever thread.
    again = c.mine()
    doubled = dist.all_reduce(again, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), 2 * c.total())


@check
def more_sizes_than_names(c: Context) -> None:
    group = dist.new_group()  # all ranks: a push-pull group of its own
    names = group._names["all_reduce"]
    names._room = 3
    for turn in range(3):
        works = []
        for elements in range(1, 9):
            tensor = c.mine((elements,), salt=turn)
            works.append((tensor, dist.all_reduce(tensor, group=group, async_op=True)))
        for tensor, work in works:
            work.wait()
            same(tensor, c.total(tuple(tensor.shape), salt=turn))
    assert len(names._used) == 3


@check
def broadcast_moves_bits_of_every_dtype(c: Context) -> None:
    for root in range(c.size):
        for dtype in (*DTYPES, "bool", "int16", "complex64"):
            tensor = c.mine((3, 4), "int32").to(getattr(torch, dtype))
            dist.broadcast(tensor, root)
            same(tensor, c.of(root, (3, 4), "int32").to(getattr(torch, dtype)))
        strange = torch.tensor([0x7FC12345, 1, 0x7F800001 + c.rank], dtype=torch.int32).view(torch.float32)
        dist.broadcast(strange, root)
        assert strange.view(torch.int32).tolist() == [0x7FC12345, 1, 0x7F800001 + root]
        turned = c.mine((2, 3)).t()
        dist.broadcast(turned, root, async_op=True).wait()
        same(turned, c.of(root, (2, 3)).t())


@check
def barrier_waits_for_everybody(c: Context) -> None:
    for turn in range(3):
        (c.folder / f"barrier.{turn}.{c.rank}").touch()
        dist.barrier() if turn else dist.barrier(async_op=True).wait()
        assert all((c.folder / f"barrier.{turn}.{rank}").exists() for rank in range(c.size))


@check
def many_tensors_in_one_call(c: Context) -> None:
    tensors = [c.mine((9,)), c.mine((2, 3), salt=1)]
    dist.all_reduce_coalesced(tensors)
    same(tensors, [c.total((9,)), c.total((2, 3), salt=1)])
    tensors = [c.mine((9,)), c.mine((2, 3), salt=1)]
    dist.all_reduce_coalesced(tensors, op=dist.ReduceOp.MAX)
    wanted = [torch.stack(c.every((9,))).amax(0), torch.stack(c.every((2, 3), salt=1)).amax(0)]
    same(tensors, wanted)


@check
def collectives_called_by_the_compiler(c: Context) -> None:
    import torch.distributed._functional_collectives as functional

    same(functional.wait_tensor(functional.all_reduce(c.mine(), "sum", dist.group.WORLD)), c.total())
    same(functional.wait_tensor(functional.broadcast(c.mine(), 1, dist.group.WORLD)), c.of(1))
    gathered = functional.all_gather_tensor(c.mine(), 0, dist.group.WORLD)
    same(functional.wait_tensor(gathered), torch.cat(c.every()))


@check
def the_forms_that_few_people_use(c: Context) -> None:
    group = dist.group.WORLD
    assert group is not None and group.name() == "byteps" and dist.get_backend() == "byteps"
    tensor = c.mine()
    group.allreduce(tensor).wait()
    same(tensor, c.total())
    tensor = c.mine()
    group.allreduce([tensor], dist.ReduceOp.MIN).wait()
    same(tensor, torch.stack(c.every()).amin(0))
    tensor = c.mine()
    group.broadcast(tensor, 1).wait()
    same(tensor, c.of(1))
    lazy = torch.complex(c.mine(), c.mine()).conj()  # conjugated when it is read
    group.broadcast(lazy, 1).wait()
    same(lazy.resolve_conj(), torch.complex(c.of(1), -c.of(1)))
    group.barrier().wait()


@check
def ranks_that_disagree_are_told(c: Context) -> None:
    group, said = dist.new_group(), ""
    try:
        dist.all_reduce(c.mine((3 if c.rank else 4,)), group=group)
    except DeclarationError as error:
        said = str(error)
    dist.barrier()  # everybody has been told, and the other groups go on
    assert "torch.distributed." in said and "[3]" in said, said


@check
def errors_name_the_call(c: Context) -> None:
    """Ranks that disagree are told by the name of a tensor, which is that of the call in the script."""
    dist.all_reduce(torch.zeros(771))
    dist.broadcast(torch.zeros(771), 0)
    dist.barrier()
    assert current.session is not None
    names = {re.sub(r"\d+", "N", name) for name in current.session.tensors}
    calls = ("all_reduce", "broadcast", "barrier")
    assert {f"torch.distributed.N.{call}.N.N" for call in calls} <= names, names
