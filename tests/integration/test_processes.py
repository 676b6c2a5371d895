"""Life and death of a worker process: exceptions, exits, forks, suspension, asynchronous training."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np

import byteps as bps
from byteps.testing import cluster, report

FAST = {"PS_HEARTBEAT_INTERVAL": "0.2", "BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def one_step(name: str = "x") -> float:
    return float(bps.push_pull(np.array([bps.rank() + 1.0]), average=False, name=name)[0])


def rank_one_fails() -> list[Any]:
    bps.init()
    one_step()
    bps.barrier()  # else rank 0 may hear of the failure before it has the result of the first step
    if bps.rank() == 1:
        raise ValueError("a bad batch")
    seen = []
    for _ in range(2):  # every later operation raises the same error
        try:
            one_step()
        except bps.PeerLostError as error:
            seen.append([str(error), error.role, error.rank])
    return seen


def test_an_exception_in_one_rank_is_told_to_the_others() -> None:
    with cluster(rank_one_fails, env=FAST) as job:
        job.wait(check=False)
        assert job.workers[1].exit_code == 1
        assert "ValueError: a bad batch" in job.workers[1].output
        assert job.workers[0].exit_code == 0, job.describe()
        first, second = job.workers[0].result
        assert first == second
        assert first[1:] == ["worker", 1] and "ValueError: a bad batch" in first[0]


def leave_without_a_word() -> float:
    bps.init()
    return one_step()


def test_everything_is_released_at_exit_without_being_asked() -> None:
    with cluster(leave_without_a_word, workers=3, servers=2, env=FAST) as job:
        assert job.wait() == [6.0, 6.0, 6.0]


def forks() -> list[Any]:
    bps.init()
    results: list[Any] = [one_step()]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            bps.rank()
        except bps.NotInitializedError as error:
            os.write(write, str(error).encode())
        raise SystemExit(0)  # with everything that happens at exit
    _, status = os.waitpid(child, 0)
    results += [status, os.read(read, 4096).decode(), one_step()]
    return results


def test_a_forked_child_does_not_end_its_parents_membership() -> None:
    with cluster(forks, env=FAST) as job:
        for rank, (before, status, text, after) in enumerate(job.wait()):
            assert (before, status, after) == (3.0, 0, 3.0)
            assert f"forked from rank {rank}" in text


def dies_with_a_child() -> list[Any]:
    bps.init()
    one_step()
    if bps.rank() == 1:
        if os.fork() == 0:
            report("child")
            threading.Event().wait(60)  # like a data loader's worker that has not noticed yet
            os._exit(0)
        report("parent")
        threading.Event().wait(60)
    try:
        one_step()
    except bps.PeerLostError as error:
        return [error.role, error.rank]
    return []


def test_a_forked_child_does_not_hide_its_parents_death() -> None:
    env = FAST | {"PS_HEARTBEAT_TIMEOUT": "50"}  # only the end of its connections can tell in time
    with cluster(dies_with_a_child, env=env) as job:
        job.workers[1].wait_report(1)
        job.workers[1].signal(signal.SIGKILL)
        assert job.workers[0].wait(20) == 0, job.describe()
        assert job.workers[0].result == ["worker", 1]


def suspends() -> list[float]:
    bps.init()
    results = [one_step()]
    bps.suspend()
    bps.resume(2, 1)
    results.append(one_step())  # the same name, declared anew
    results.append(float(bps.size()))
    return results


def test_suspend_and_resume() -> None:
    with cluster(suspends, env=FAST) as job:
        assert job.wait() == [[3.0, 3.0, 2.0]] * 2


def trains_asynchronously(steps: int) -> list[float]:
    bps.init()
    weights = np.full(1000, 100.0 if bps.rank() == 0 else -1.0, np.float32)
    bps.broadcast(weights, 0, name="w")
    bps.barrier()
    seen = [float(bps.push_pull(np.full(1000, 1.0, np.float32), name="w")[0]) for _ in range(steps)]
    bps.barrier()
    final = bps.push_pull(np.zeros(1000, np.float32), name="w")
    assert len(set(final.tolist())) == 1
    return [*seen, float(final[0])]


def test_asynchronous_training_adds_to_the_broadcast_value() -> None:
    steps = 20
    with cluster(trains_asynchronously, env=FAST | {"BYTEPS_ENABLE_ASYNC": "1"}, args=(steps,)) as job:
        for *seen, final in job.wait():
            assert seen == sorted(seen) and seen[0] >= 101.0  # it only grows, from the base value on
            assert final == 100.0 + 2 * steps  # nothing was lost, nothing counted twice


def drops_handles() -> int:
    bps.init()
    for i in range(200):  # the memory of each is garbage as soon as the call returns
        bps.push_pull_async(np.full(5000, float(i)), name=f"dropped {i % 20}")
    for i in range(20):  # later rounds of the same names: done when all earlier ones are
        assert one_step_of(5000, f"dropped {i}")
    return bps.counters()["operations"]


def one_step_of(count: int, name: str) -> bool:
    return bool((bps.push_pull(np.full(count, 1.0), name=name) == 1.0).all())


def test_operations_nobody_waits_for_are_done_all_the_same() -> None:
    with cluster(drops_handles, env=FAST) as job:
        assert job.wait() == [220, 220]
