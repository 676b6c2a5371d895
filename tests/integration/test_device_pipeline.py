"""The pipeline of ``byteps.torch.device`` with Gloo: every route, any order of calls, exact sums."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from device_job import Session, run  # noqa: E402

from byteps.errors import (  # noqa: E402
    BytePSError,
    DeclarationError,
    NotInitializedError,
    OperationTimeoutError,
    PeerLostError,
)

ROUTES = [([2], True), ([2], False), ([2, 2], False), ([2, 1], False), ([3, 1, 2], False), ([1, 1], False)]


def values_of(rank: int, elements: int, dtype: Any = torch.float32) -> Any:
    """4**rank: a sum shows who was counted, and how often."""
    return (torch.arange(elements) % 4).to(dtype) * 4**rank


@pytest.mark.parametrize(("local_sizes", "serverless"), ROUTES)
def test_sums_are_exact_on_every_route(local_sizes: list[int], serverless: bool) -> None:
    size = sum(local_sizes)
    total = sum(4**rank for rank in range(size))

    def body(session: Session) -> bool:
        right = True
        for elements in (1, 2, 5, 1000, 1001):  # with and without remainders, fewer elements than ranks
            mine = values_of(session.rank, elements)
            assert session.start(f"t{elements}", mine).wait() is mine
            right &= torch.equal(mine, (torch.arange(elements) % 4).to(torch.float32) * total)
        return right

    assert run(local_sizes, body, serverless=serverless)[0] == [True] * size


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8])
def test_every_kind_of_number(dtype: Any) -> None:
    def body(session: Session) -> Any:
        mine = values_of(session.rank % 2, 7, dtype)
        return session.start("t", mine).wait().tolist()

    expected = (torch.arange(7) % 4 * 10).tolist()
    assert run([2, 2], body)[0] == [expected] * 4


def test_only_one_machine_s_worth_of_bytes_leaves_a_machine() -> None:
    def body(session: Session) -> None:
        session.start("t", values_of(session.rank, 1001)).wait()

    assert run([2, 2], body)[1].bytes_pushed == 2 * 1001 * 4
    assert run([2, 1], body)[1].bytes_pushed == 2 * 1001 * 4
    assert run([4], body, serverless=True)[1].bytes_pushed == 0


def test_an_average_is_made_once() -> None:
    def body(session: Session) -> Any:
        return session.start("t", torch.full((3,), 10 * session.rank), average=True).wait().tolist()

    assert run([2, 2], body)[0] == [[15, 15, 15]] * 4
    assert run([2], body, serverless=True)[0] == [[5, 5, 5]] * 2


@pytest.mark.parametrize(("local_sizes", "serverless"), [([3], True), ([2, 2], False), ([2, 1], False)])
def test_ranks_may_start_in_any_order_and_many_at_once(
    local_sizes: list[int], serverless: bool, seed: int
) -> None:
    count, rounds, size = 12, 3, sum(local_sizes)
    total = sum(4**rank for rank in range(size))

    def body(session: Session) -> list[float]:
        order = list(range(count)) * rounds
        random.Random(seed + session.rank).shuffle(order)
        started = [(index, session.start(f"t{index}", values_of(session.rank, 4 + index))) for index in order]
        return sorted({float(handle.wait()[3]) for _, handle in started})

    assert run(local_sizes, body, serverless=serverless)[0] == [[3.0 * total]] * size


def test_one_rank_may_wait_for_a_tensor_that_another_starts_last() -> None:
    # A fixed order, of one rank or of names, would wait for ever here.
    def body(session: Session) -> bool:
        first, second = ("a", "b") if session.rank == 0 else ("b", "a")
        if session.rank == 0:
            handles = [session.start(name, torch.ones(8)) for name in (first, second)]
            return all(bool((handle.wait() == 2).all()) for handle in handles)
        return all(bool((session.start(name, torch.ones(8)).wait() == 2).all()) for name in (first, second))

    assert run([2], body, serverless=True)[0] == [True, True]
    assert run([2], body)[0] == [True, True]


def test_staging_is_used_again_by_the_next_step() -> None:
    def body(session: Session) -> int:
        for _ in range(5):
            handles = [session.start(f"t{index}", torch.ones(4 + index)) for index in range(6)]
            assert all(bool((handle.wait() == 2).all()) for handle in handles)
        return len(session.made[0]._staging._free)

    results, _ = run([2], body)
    assert all(0 < buffers <= 6 for buffers in results)


def test_the_end_and_a_loss_and_a_refusal_end_what_waits() -> None:
    def body(session: Session) -> list[str]:
        session.start("first", torch.ones(4)).wait()
        if session.rank == 1:
            return []  # it never comes to the others
        pipeline, said = session.made[0], []
        refused = session.start("refused", torch.ones(4))
        lost = session.start("lost", torch.ones(4))
        pipeline.refuse("refused", "ranks disagree")
        pipeline.fail(PeerLostError("worker 1 (host b) was lost", "worker", 1, "b"))
        pipeline.close()
        for handle, kind in ((refused, DeclarationError), (lost, PeerLostError)):
            with pytest.raises(kind) as caught:
                handle.wait()
            said.append(str(caught.value))
        with pytest.raises(PeerLostError):
            session.start("late", torch.ones(4))
        return said

    results, _ = run([2], body, serverless=True)
    assert results[0] == ["ranks disagree", "worker 1 (host b) was lost"]


def test_what_was_refused_does_not_end_the_job_when_its_time_is_up() -> None:
    def body(session: Session) -> float:
        from datetime import timedelta

        session.start("first", torch.ones(4)).wait()
        if session.rank == 0:
            pipeline = session.made[0]
            asked, told, timed_out = threading.Event(), threading.Event(), threading.Event()
            next_step = pipeline._order.next

            def watched(wanted: str) -> str:
                asked.set()
                try:
                    return next_step(wanted)
                except OperationTimeoutError:
                    told.wait(20)  # its time is up after it was refused, however fast the two threads are
                    timed_out.set()
                    raise

            pipeline._order.next = watched
            pipeline._order._asking.set_timeout(timedelta(milliseconds=50))
            refused = session.start("refused", torch.ones(4))
            assert asked.wait(20)  # what is refused before anybody asked for it is never asked for
            pipeline.refuse("refused", "ranks disagree")
            with pytest.raises(DeclarationError):
                refused.wait()
            told.set()
            assert timed_out.wait(20)
            pipeline._order._asking.set_timeout(timedelta(seconds=20))
        return float(session.start("later", torch.ones(4)).wait()[0])

    assert run([2], body, serverless=True)[0] == [2.0, 2.0]


def test_leaving_ends_what_waits() -> None:
    def body(session: Session) -> str:
        session.start("first", torch.ones(4)).wait()
        if session.rank == 1:
            return ""
        handle = session.start("alone", torch.ones(4))
        session.made[0].close()
        with pytest.raises(NotInitializedError) as caught:
            handle.wait()
        return str(caught.value)

    results, _ = run([2], body, serverless=True)
    assert "has left the job" in results[0]


def test_a_missing_rank_is_counted() -> None:
    def body(session: Session) -> str:
        session.start("first", torch.ones(4)).wait()
        if session.rank == 1:
            return ""
        from datetime import timedelta

        session.made[0]._order._asking.set_timeout(timedelta(milliseconds=50))
        with pytest.raises(BytePSError) as caught:
            session.start("alone", torch.ones(4)).wait()
        return str(caught.value)

    results, _ = run([2], body, serverless=True)
    assert "reduce alone 0 1: 1 of 2 ranks of this machine came to it" in results[0]
