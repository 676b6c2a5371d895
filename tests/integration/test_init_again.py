"""``shutdown()`` and ``init()`` again: scheduler and servers stay for it, as long as worker processes do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest
from launch_job import bpslaunch, run

import byteps as bps
from byteps.testing import cluster, report

FAST = {"PS_HEARTBEAT_INTERVAL": "0.2", "BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}
SHAPES = {"servers": {"workers": 2, "servers": 2}, "grouped": {"workers": 2, "servers": 1, "nproc": 2}}
SHAPES |= {"serverless": {"nproc": 2}}


def sums(count: int) -> set[float]:
    """Of tensors that are as many and as large as ``count`` says."""
    mine = 4.0 ** bps.rank()
    handles = [
        bps.push_pull_async(np.full(1_000 * count, mine), average=False, name=f"x{k}") for k in range(count)
    ]
    return {float(value) for handle in handles for value in bps.synchronize(handle)[[0, -1]]}


def joins_again(times: int, slow: int) -> list[list[float]]:
    seen = []
    for turn in range(times):
        bps.init()
        seen.append(sorted(sums(3 * turn % 7 + 1)))
        if bps.rank() == slow:
            threading.Event().wait(0.3)  # the others are in init() by then
        bps.shutdown()
    return seen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("slow", [0, 1])
def test_all_ranks_join_again_several_times(shape: str, slow: int) -> None:
    ranks = 4 if shape == "grouped" else 2
    with cluster(joins_again, args=(5, slow), env=FAST, **SHAPES[shape]) as job:  # type: ignore[arg-type]
        assert job.wait() == [[[(4.0**ranks - 1) / 3]] * 5] * ranks
        # Nobody had to wait long enough to say so.
        assert all("cannot be reached" not in worker.output for worker in job.workers)


def test_a_job_that_was_launched_with_servers_joins_again() -> None:
    program = """
import numpy as np, byteps as bps
for turn in range(3):
    bps.init()
    print(turn, bps.push_pull(np.full(9, 4.0 ** bps.rank()), average=False, name=f"x{turn}")[0], flush=True)
    bps.shutdown()
"""
    job = run(bpslaunch("--workers", "2", "--servers", "1", sys.executable, "-c", program))
    assert job.process.returncode == 0, job.said
    for label in ("worker 0", "worker 1"):
        assert job.lines(label) == ["0 5.0", "1 5.0", "2 5.0"]


def only_one_comes_back() -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    bps.init()
    rank = bps.rank()
    sums(1)
    bps.shutdown()
    if rank == 1:
        report("left")
        signal.sigwait({signal.SIGUSR1})
        return ""
    try:
        bps.init()
    except bps.JoinError as error:
        return str(error)
    return "joined alone"


def test_who_does_not_come_back_is_named() -> None:
    with cluster(only_one_comes_back, env={**FAST, "BYTEPS_CONNECT_TIMEOUT_S": "6"}) as job:
        job.workers[1].wait_line("the others wait for this process to come back")
        assert job.workers[0].wait() == 0, job.describe()
        job.workers[1].signal(signal.SIGUSR1)
        text = job.workers[0].result
        assert "1 of 2 workers, 1 of 1 servers; missing worker 1" in text
        assert "left, and have not called init() or resume() again: worker 1 (host" in text


def comes_back_to_one_that_ended() -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    bps.init()
    rank = bps.rank()
    sums(1)
    bps.shutdown()
    if rank == 1:
        return ""
    report("left")
    signal.sigwait({signal.SIGUSR1})
    try:
        bps.init()
    except bps.JoinTimeoutError as error:
        return str(error)
    return "joined alone"


def test_who_has_ended_is_named() -> None:
    with cluster(comes_back_to_one_that_ended, env={**FAST, "BYTEPS_CONNECT_TIMEOUT_S": "5"}) as job:
        job.workers[0].wait_report()
        assert job.workers[1].wait() == 0
        job.workers[0].signal(signal.SIGUSR1)
        job.workers[0].wait()
        text = job.workers[0].result
        assert "missing worker 1 (worker 1 (host" in text and "was there and went" in text, job.describe()
        assert job.workers[0].output.count("waiting for") <= 3  # once, and seldom again


def comes_back_after_a_loss() -> list[str]:
    bps.init()
    rank = bps.rank()
    sums(1)
    bps.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    seen = []
    try:
        while True:
            sums(1)
    except bps.PeerLostError as error:
        seen.append(str(error))
    bps.shutdown()
    try:
        bps.init()
    except bps.JoinError as error:
        seen.append(str(error))
    return seen


def test_a_job_that_failed_says_so_at_once() -> None:
    with cluster(comes_back_after_a_loss, env={**FAST, "BYTEPS_CONNECT_TIMEOUT_S": "300"}) as job:
        assert job.workers[0].wait(30) == 0, job.describe()  # and not after five minutes
        lost, refused = job.workers[0].result
        assert "worker 1 (host" in lost
        assert refused.startswith("init: the job that this process was in has ended") and lost in refused


def leaves_and_forks() -> list[Any]:
    bps.init()
    sums(1)
    bps.shutdown()
    child = os.fork()
    if child == 0:
        threading.Event().wait(60)  # like a data loader's worker that has not noticed yet
        os._exit(0)
    report(child)
    return [bps.is_initialized()]


def test_a_child_does_not_keep_the_job_of_a_process_that_has_left() -> None:
    with cluster(leaves_and_forks, env=FAST) as job:
        children = [worker.wait_report() for worker in job.workers]
        try:
            assert [worker.wait() for worker in job.workers] == [0, 0]
            assert job.scheduler is not None
            assert [process.wait() for process in (job.scheduler, *job.servers)] == [0, 0], job.describe()
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
