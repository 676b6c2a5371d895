"""Ranks of one machine die, hang or leave: the others say who, and no shared memory is left behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from test_peer_loss import (
    DEAF_HEARTBEAT,
    FAST_HEARTBEAT,
    HOST,
    leave_early,
    push_until_somebody_is_lost,
    raise_in_one,
)

from byteps.testing import cluster

SHM = Path("/dev/shm")


@pytest.mark.parametrize(
    ("topology", "victim"),
    [
        ({"nproc": 2}, 0),
        ({"nproc": 3}, 2),
        ({"workers": 2, "nproc": (2, 1), "servers": 1}, 1),
        ({"workers": 2, "nproc": (1, 2), "servers": 1}, 0),
    ],
    ids=["rank 0 of 2", "rank 2 of 3", "a rank of a machine among machines", "a machine of one"],
)
@pytest.mark.parametrize(
    ("how", "elements", "in_arena"),
    [
        (signal.SIGKILL, 1000, True),
        (signal.SIGKILL, 8_000_000, True),
        (signal.SIGKILL, 8_000_000, False),
        (signal.SIGSTOP, 8_000_000, True),
    ],
    ids=["dies, small tensor", "dies, in the arena", "dies, outside the arena", "hangs"],
)
def test_the_others_learn_who_was_lost(
    topology: dict[str, Any], victim: int, how: signal.Signals, elements: int, in_arena: bool
) -> None:
    before = set(SHM.iterdir())
    env = DEAF_HEARTBEAT if how == signal.SIGKILL else FAST_HEARTBEAT
    with cluster(
        push_until_somebody_is_lost, **topology, args=(elements, in_arena), env=env, deadline_s=60
    ) as job:
        for worker in job.workers:
            worker.wait_report()
        job.workers[victim].signal(how)
        others = [worker for worker in job.workers if worker is not job.workers[victim]]
        for worker in others:
            worker.wait(30)
            assert worker.exit_code == 0, job.describe()
        seen = {(worker.result["role"], worker.result["rank"], worker.result["host"]) for worker in others}
        assert seen == {("worker", victim, HOST)}, job.describe()
    assert set(SHM.iterdir()) == before


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_a_service_that_dies_is_not_taken_for_a_rank(role: str) -> None:
    """What one rank of a machine learns of it, the others may learn from that rank."""
    with cluster(
        push_until_somebody_is_lost, workers=2, nproc=2, servers=1, args=(1000, True), env=DEAF_HEARTBEAT
    ) as job:
        for worker in job.workers:
            worker.wait_report()
        victim = job.servers[0] if role == "server" else job.scheduler
        assert victim is not None
        victim.signal(signal.SIGKILL)
        for worker in job.workers:
            worker.wait(30)
        assert {(worker.result["role"], worker.result["rank"]) for worker in job.workers} == {(role, 0)}


@pytest.mark.parametrize("elements", [1000, 4_000_000], ids=["small tensor", "many parts"])
@pytest.mark.parametrize(
    ("topology", "victim"),
    [({"workers": 2, "servers": 1}, 1), ({"nproc": 2}, 0), ({"nproc": 2}, 1)],
    ids=["a machine", "rank 0", "rank 1"],
)
def test_who_was_declared_lost_and_wakes_up_says_so(
    topology: dict[str, Any], victim: int, elements: int
) -> None:
    """Scheduler and servers may have ended long before: that is not what it has lost."""
    with cluster(push_until_somebody_is_lost, **topology, args=(elements,), env=FAST_HEARTBEAT) as job:
        for worker in job.workers:
            worker.wait_report()
        stopped = job.workers[victim]
        stopped.signal(signal.SIGSTOP)
        for process in job.processes:
            if process is not stopped:
                process.wait(30)
        stopped.signal(signal.SIGCONT)
        stopped.wait(30)
        assert stopped.exit_code == 0, job.describe()  # it got a PeerLostError, as its peers did
        assert (stopped.result["role"], stopped.result["rank"]) == ("worker", victim)
        own = rf"this process, worker {victim} \(host .*, pid {stopped.pid}\), was declared lost by the "
        verdict = rf"{own}scheduler at \d\d:\d\d:\d\d: no heartbeat"
        assert re.match(verdict, stopped.result["text"]), job.describe()
        assert "scheduler (host" not in stopped.output, job.describe()


def test_a_server_that_was_declared_lost_and_wakes_up_says_so() -> None:
    with cluster(push_until_somebody_is_lost, workers=2, servers=1, args=(1000,), env=FAST_HEARTBEAT) as job:
        for worker in job.workers:
            worker.wait_report()
        server = job.servers[0]
        server.signal(signal.SIGSTOP)
        for process in job.processes:
            if process is not server:
                process.wait(30)
        server.signal(signal.SIGCONT)
        assert server.wait(30) == 1
        own = rf"this process, server 0 \(host .*, pid {server.pid}\), was declared lost by the scheduler at "
        assert re.search(own, server.output) and "scheduler was lost" not in server.output, job.describe()


@pytest.mark.parametrize("nproc", [2, 3])
def test_a_rank_that_leaves_while_others_need_it_is_named(nproc: int) -> None:
    with cluster(leave_early, nproc=nproc, args=(1,), env=DEAF_HEARTBEAT) as job:
        results = job.wait(check=False)
        for rank in set(range(nproc)) - {1}:
            assert results[rank] is not None, job.describe()
            assert (results[rank]["role"], results[rank]["rank"]) == ("worker", 1)
            assert "left" in results[rank]["text"]


def test_an_exception_in_one_rank_ends_the_others_with_its_name() -> None:
    with cluster(raise_in_one, nproc=2, args=(0,), env=DEAF_HEARTBEAT) as job:
        results = job.wait(check=False)
        assert job.workers[0].exit_code == 1
        assert results[1] is not None and "worker 0" in results[1], job.describe()


def test_nothing_is_left_when_all_ranks_are_killed_at_once(tmp_path: Path) -> None:
    sockets = tmp_path / "sockets"
    before = set(SHM.iterdir())
    env = {"BYTEPS_SOCKET_PATH": str(sockets)}
    for _ in range(2):  # and the next job starts as if nothing had been
        with cluster(push_until_somebody_is_lost, nproc=3, args=(1_000_000, True), env=env) as job:
            for worker in job.workers:
                worker.wait_report()
            assert not list(sockets.iterdir())
            for worker in job.workers:
                worker.signal(signal.SIGKILL)
            for worker in job.workers:
                worker.wait(20)
    assert set(SHM.iterdir()) == before
    assert not list(sockets.iterdir())


def die_before_the_ranks_have_met() -> None:
    import byteps as bps
    from byteps import _core

    if os.environ["BYTEPS_LOCAL_RANK"] == "1":
        _core.can_read = lambda *_: os._exit(7)  # type: ignore[assignment]
    try:
        bps.init()
    except bps.PeerLostError as error:
        assert error.rank == 1
        return
    raise AssertionError("the job formed without rank 1")


def test_a_rank_that_dies_while_they_meet_does_not_hang_the_others(tmp_path: Path) -> None:
    env = {"BYTEPS_SOCKET_PATH": str(tmp_path), **DEAF_HEARTBEAT}
    with cluster(die_before_the_ranks_have_met, nproc=3, env=env, deadline_s=40) as job:
        job.wait(check=False)
        assert [worker.exit_code for worker in job.workers] == [0, 7, 0], job.describe()
    assert not list(tmp_path.iterdir())
