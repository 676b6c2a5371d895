"""Any process dies or hangs: every other one says who, by role, rank and host, and ends. Nothing hangs."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from byteps.testing import Cluster, cluster, report

# A hang is noticed after the time-out; a death at once, whatever the time-out is.
FAST_HEARTBEAT = {"PS_HEARTBEAT_INTERVAL": "0.2", "PS_HEARTBEAT_TIMEOUT": "2"}
DEAF_HEARTBEAT = {"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "600"}
HOST = socket.gethostname()


def push_until_somebody_is_lost(elements: int, in_arena: bool = False) -> dict[str, Any]:
    import numpy as np

    import byteps as bps

    bps.init()
    data = bps.empty(elements, np.float32) if in_arena else np.empty(elements, np.float32)
    data[:] = 1
    for round_number in range(1_000_000):
        if round_number == 3:
            report("running")
        try:
            bps.push_pull(data, name="gradient")
        except bps.PeerLostError as error:
            first = {"role": error.role, "rank": error.rank, "host": error.host, "text": str(error)}
            break
    try:
        bps.push_pull(data, name="gradient")
    except bps.PeerLostError as error:
        assert (error.role, error.rank) == (first["role"], first["rank"])  # every later operation, too
        return first
    raise AssertionError("an operation after the loss succeeded")


def victim_of(job: Cluster, role: str) -> Any:
    return {"worker": job.workers[-1], "server": job.servers[-1], "scheduler": job.scheduler}[role]


@pytest.mark.parametrize("role", ["worker", "server", "scheduler"])
@pytest.mark.parametrize(
    ("how", "elements"),
    [(signal.SIGKILL, 1000), (signal.SIGKILL, 4_000_000), (signal.SIGSTOP, 1000)],
    ids=["dies, small tensor", "dies, many pieces", "hangs"],
)
def test_everybody_learns_who_was_lost(role: str, how: signal.Signals, elements: int) -> None:
    env = DEAF_HEARTBEAT if how == signal.SIGKILL else FAST_HEARTBEAT
    with cluster(
        push_until_somebody_is_lost, workers=3, servers=2, args=(elements,), env=env, deadline_s=60
    ) as job:
        for worker in job.workers:
            worker.wait_report()
        victim = victim_of(job, role)
        victim.signal(how)
        others = [process for process in job.processes if process is not victim]
        for process in others:
            process.wait(30)
        # Servers are numbered by the scheduler in the order in which they registered.
        expected_ranks = {"worker": {2}, "server": {0, 1}, "scheduler": {0}}[role]
        seen = [worker.result for worker in job.workers if worker is not victim]
        assert all(result is not None for result in seen), job.describe()
        assert {result["role"] for result in seen} == {role}, job.describe()
        assert {result["rank"] for result in seen} <= expected_ranks, job.describe()
        assert len({result["rank"] for result in seen}) == 1, job.describe()
        host = (
            "127.0.0.1" if role == "scheduler" else HOST
        )  # the scheduler is known by the address it was given
        assert {result["host"] for result in seen} == {host}, job.describe()
        for process in others:
            if process in job.workers:
                assert process.exit_code == 0, job.describe()  # our script caught the exception
            else:
                assert process.exit_code not in (0, None), job.describe()
                assert f"{role}" in process.output and "lost" in process.output, job.describe()


def push_until(stop: str) -> int:
    import numpy as np

    import byteps as bps

    bps.init()
    for step in range(1_000_000):
        expected = bps.size() * (step % 7)
        total = bps.push_pull(np.full(1000, step % 7, np.float32), average=False, name="gradient")
        assert (total == expected).all(), step
        stopping = np.array([Path(stop).exists()], np.float32)
        if bps.push_pull(stopping, average=False, name="stop")[0]:
            return step
        if step == 3:
            report("running")
    raise AssertionError("nobody said stop")


def test_a_process_that_stands_still_for_less_than_the_time_out_ends_no_job(tmp_path: Path) -> None:
    # Its own silence is short enough, and when it goes on, what it has not read is not the others' silence.
    stop = tmp_path / "stop"
    with cluster(push_until, workers=2, servers=1, args=(str(stop),), env=FAST_HEARTBEAT) as job:
        for worker in job.workers:
            worker.wait_report()
        for role in ("scheduler", "server", "worker"):
            victim_of(job, role).signal(signal.SIGSTOP)
            time.sleep(1.6)  # of 2 s
            victim_of(job, role).signal(signal.SIGCONT)
        stop.touch()
        assert len(set(job.wait())) == 1


def leave_early(rank_that_leaves: int) -> dict[str, Any] | None:
    import numpy as np

    import byteps as bps

    bps.init()
    data = np.ones(1000, np.float32)
    for _ in range(3):
        bps.push_pull(data, name="gradient")
    if bps.rank() == rank_that_leaves:
        bps.shutdown()
        return None
    try:
        while True:
            bps.push_pull(data, name="gradient")
    except bps.PeerLostError as error:
        return {"role": error.role, "rank": error.rank, "host": error.host, "text": str(error)}


def test_a_worker_that_leaves_while_others_need_it_is_named() -> None:
    with cluster(leave_early, workers=2, servers=1, args=(1,), env=DEAF_HEARTBEAT) as job:
        results = job.wait(check=False)
        assert results[0] is not None, job.describe()
        assert (results[0]["role"], results[0]["rank"], results[0]["host"]) == ("worker", 1, HOST)
        assert "left" in results[0]["text"]


def raise_in_one(rank_that_raises: int) -> str | None:
    import numpy as np

    import byteps as bps

    bps.init()
    data = np.ones(1000, np.float32)
    bps.push_pull(data, name="gradient")
    bps.barrier()  # all have the result before one of them fails
    if bps.rank() == rank_that_raises:
        raise ValueError("the user's own mistake")
    try:
        while True:
            bps.push_pull(data, name="gradient")
    except bps.PeerLostError as error:
        return str(error)


def test_an_exception_in_one_rank_ends_the_others_with_its_name() -> None:
    with cluster(raise_in_one, workers=2, servers=1, args=(0,), env=DEAF_HEARTBEAT) as job:
        results = job.wait(check=False)
        assert job.workers[0].exit_code == 1
        assert results[1] is not None and "worker 0" in results[1], job.describe()


def hold_the_gil(seconds: float) -> dict[str, Any]:
    import ctypes
    import time

    import numpy as np

    import byteps as bps

    bps.init()
    data = np.ones(100_000, np.float32)
    bps.push_pull(data, average=False, name="gradient")
    bps.barrier()
    handle = bps.push_pull_async(data, average=False, name="gradient")
    released = None
    if bps.rank() == 0:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # PyDLL keeps the GIL while it sleeps
        released = time.monotonic()  # one clock for all processes of a machine
    total = float(bps.synchronize(handle)[0])
    return {"sum": total, "done": time.monotonic(), "released": released}


def test_a_rank_that_holds_the_gil_is_not_dead_and_delays_nobody() -> None:
    # It holds the GIL for twice the heartbeat time-out; the other rank has its result before it lets go.
    with cluster(hold_the_gil, workers=2, servers=1, args=(4.0,), env=FAST_HEARTBEAT) as job:
        holder, other = job.wait()
        assert holder["sum"] == other["sum"] == 2.0
        assert other["done"] < holder["released"], job.describe()
