"""``byteps.torch.device`` over real processes and servers, with Gloo on CPU tensors in the place of NCCL."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from byteps.testing import cluster

pytest.importorskip("torch")

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}
ELEMENTS = (1, 7, 1000, 100_003)


def start(tensor: Any, name: str, average: bool = False) -> Any:
    """``push_pull_async_inplace`` as if the CPU were a GPU."""
    from byteps.torch import device, ops
    from byteps.worker import current

    session = current.required("push_pull")
    declared = session.tensor("push_pull", name, ops.NUMBERS[tensor.dtype], tuple(tensor.shape))
    return device.push_pull(session, declared, tensor, average, 0, tensor, None, "gloo")


def sums(kind: str) -> dict[str, Any]:
    """Rank r contributes 4**r, starting its tensors in an order of its own, three times over."""
    import torch

    import byteps.torch as bps

    bps.init()
    total = sum(4**rank for rank in range(bps.size()))
    names = list(ELEMENTS) if bps.rank() % 2 else list(ELEMENTS)[::-1]
    before = bps.counters()["pushed_bytes"]
    right = True
    for _ in range(3):
        mine = {n: torch.full((n,), 4 ** bps.rank()).to(getattr(torch, kind)) for n in names}
        handles = {n: start(tensor, f"t{n}") for n, tensor in mine.items()}
        right &= all(torch.equal(handles[n].wait(), torch.full_like(mine[n], total)) for n in names)
    mean = start(torch.full((5,), 10.0 * bps.rank()), "mean", average=True).wait()
    right &= bool((mean == 5 * (bps.size() - 1)).all())
    pushed = bps.counters()["pushed_bytes"] - before
    bps.barrier()
    return {"right": right, "pushed": pushed}


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_one_machine_without_servers(kind: str) -> None:
    with cluster(sums, nproc=2, args=(kind,), env=ENVIRONMENT) as job:
        results = job.wait()
    assert [each["right"] for each in results] == [True, True]
    assert [each["pushed"] for each in results] == [0, 0]


@pytest.mark.parametrize("nproc", [(2, 2), (2, 1)])
def test_machines_with_as_many_and_with_different_numbers_of_ranks(nproc: tuple[int, ...]) -> None:
    with cluster(sums, workers=2, nproc=nproc, servers=1, args=("float32",), env=ENVIRONMENT) as job:
        results = job.wait()
    assert all(each["right"] for each in results)
    # Of every tensor one machine's worth of bytes leaves each machine; besides, a few numbers to get to know
    # each other.
    machines, tensors = 2, 4 * (3 * sum(ELEMENTS) + 5)
    extra = sum(each["pushed"] for each in results) - machines * tensors
    assert 0 <= extra <= len(results) * 2 * machines * 8


class News:
    """Hears of a refusal after the pipeline has: what it was told of has been done."""

    def __init__(self) -> None:
        self.came = threading.Event()

    def fail(self, error: Exception) -> None: ...

    def refuse(self, name: str, text: str) -> None:
        self.came.set()

    def close(self) -> None: ...


def disagrees(late: bool) -> str:
    """The last rank has another shape; the others begin at once, or when they have been told already."""
    import torch

    import byteps.torch as bps
    from byteps.errors import DeclarationError
    from byteps.torch import device
    from byteps.worker import current

    bps.init()
    start(torch.ones(4), "same").wait()
    news = current.required("push_pull").follower(News, News)
    begin = device.push_pull

    def told_before(*args: Any) -> Any:
        assert news.came.wait(20)
        return begin(*args)

    is_odd = bps.rank() == bps.size() - 1
    device.push_pull = told_before if late else begin
    try:
        start(torch.ones(5 if is_odd else 4), "other").wait()
    except DeclarationError as error:
        device.push_pull = begin
        # The job goes on, with the same name too, and with parts as large as those that were refused.
        for name, shape in (("same", 4), ("other", (4, 1))):
            assert start(torch.ones(shape), name).wait()[0] == bps.size()
        bps.barrier()
        return str(error)
    return ""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("machines", [1, 2])
def test_ranks_that_disagree_are_told(machines: int, late: bool) -> None:
    servers = 0 if machines == 1 else 1
    with cluster(
        disagrees, workers=machines, nproc=2, servers=servers, args=(late,), env=ENVIRONMENT, deadline_s=25
    ) as job:
        for text in job.wait():
            assert "other" in text and "[4]" in text and "[5]" in text, text
