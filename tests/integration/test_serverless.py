"""Jobs on one machine, where rank 0 starts the scheduler, and a server if shared memory does not do.

Shared memory is switched off here: what is tested is who is started, who ends when, and who is told.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from launch_job import Job, bpslaunch, run

from byteps.testing import cluster, report

TCP = {"BYTEPS_ENABLE_IPC": "0"}
ASYNC = {"BYTEPS_ENABLE_ASYNC": "1"}
DEAF_HEARTBEAT = {"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "600"}


def exact_sums(elements: int) -> list[Any]:
    import numpy as np

    import byteps as bps

    bps.init()
    total = bps.push_pull(np.full(elements, 4.0 ** bps.rank(), np.float32), average=False, name="x")
    assert (total == total[0]).all()
    root = bps.broadcast(np.full(3, bps.rank()), root_rank=bps.size() - 1, name="y")
    bps.barrier()
    return [bps.rank(), bps.size(), bps.local_rank(), bps.local_size(), float(total[0]), int(root[0])]


def test_ranks_and_exact_sums_without_anything_else_to_start() -> None:
    with cluster(exact_sums, nproc=3, args=(1_500_000,), env=TCP) as job:
        assert job.wait() == [[rank, 3, rank, 3, 21.0, 2] for rank in range(3)]
        assert job.scheduler is None and job.servers == []


@pytest.mark.parametrize(
    ("nproc", "places"),
    [(2, [(0, 2), (1, 2), (0, 2), (1, 2)]), ((2, 1), [(0, 2), (1, 2), (0, 1)])],
    ids=["alike", "different"],
)
def test_several_machines_of_several_ranks(nproc: Any, places: list[tuple[int, int]]) -> None:
    with cluster(exact_sums, workers=2, nproc=nproc, servers=2, args=(1_500_000,), env=TCP) as job:
        size = len(places)
        total = float(sum(4**rank for rank in range(size)))
        assert job.wait() == [[rank, size, *place, total, size - 1] for rank, place in enumerate(places)]
        assert job.scheduler is not None and len(job.servers) == 2


PROGRAM = """
import numpy as np, byteps as bps
bps.init()
total = bps.push_pull(np.full(9, 4.0**bps.rank()), average=False, name="x")
print(bps.rank(), bps.size(), total[0], flush=True)
"""
# The original's way: devices are ranks, and the address of a scheduler that nobody starts means nothing.
DEVICES = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "1",
    "NVIDIA_VISIBLE_DEVICES": "0,1",
    "DMLC_PS_ROOT_URI": "192.0.2.1",
    "DMLC_PS_ROOT_PORT": "1",
    "DMLC_NUM_SERVER": "1",
}


@pytest.mark.parametrize(
    ("options", "env"),
    [(["-n", "2"], TCP), (["--nproc-per-node", "2"], ASYNC), ([], {**TCP, **DEVICES})],
    ids=["by number", "asynchronous", "by devices"],
)
def test_the_launcher_starts_ranks_and_leaves_nothing(options: list[str], env: dict[str, str]) -> None:
    job = run(bpslaunch(*options, sys.executable, "-c", PROGRAM, **env))
    assert job.process.returncode == 0, job.said
    sums = [line.split() for label in ("worker 0", "worker 1") for line in job.lines(label)]
    assert [words[:2] for words in sums] == [["0", "2"], ["1", "2"]]
    assert "5.0" in [words[2] for words in sums]  # asynchronous: whoever is last sees both
    assert job.said.splitlines()[-1].endswith(": 2 workers")


def test_a_program_between_launcher_and_rank_may_close_the_socket() -> None:
    call = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"
    job = run(bpslaunch("-n", "2", sys.executable, "-c", call, PROGRAM, **TCP))
    assert job.process.returncode == 0, job.said
    assert job.lines("worker 1") == ["1 2 5.0"]


# Rank 1 is told the process of rank 0, waits for its end, and still has its scheduler and server.
OUTLIVES = """
import os, select, numpy as np, byteps as bps
bps.init()
mine = np.array([os.getpid() if bps.rank() == 0 else 0])
other = bps.broadcast(mine, root_rank=0, name="process")[0]
bps.barrier()
if bps.rank() == 1:
    select.select([os.pidfd_open(other)], [], [], 30)
    print(bps.push_pull(np.full(5, 3.0), average=False, name="new")[0], flush=True)
    bps.shutdown()
    print("left", flush=True)
else:
    bps.shutdown()
"""


def test_rank_0_may_finish_long_before_the_others() -> None:
    job = run(bpslaunch("-n", "2", sys.executable, "-c", OUTLIVES, **ASYNC))
    assert job.process.returncode == 0, job.said
    assert job.lines("worker 1") == ["3.0", "left"]


def push_until_somebody_is_lost() -> dict[str, Any]:
    import numpy as np

    import byteps as bps

    bps.init()
    for round_number in range(1_000_000):
        if round_number == 3:
            report("running")
        try:
            bps.push_pull(np.ones(1000, np.float32), name="gradient")
        except bps.PeerLostError as error:
            return {"role": error.role, "rank": error.rank}
    return {}


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_is_named_and_everything_ends(victim: int) -> None:
    with cluster(push_until_somebody_is_lost, nproc=2, env=TCP | DEAF_HEARTBEAT) as job:
        for worker in job.workers:
            worker.wait_report()
        job.workers[victim].signal(signal.SIGKILL)
        assert job.wait(check=False)[1 - victim] == {"role": "worker", "rank": victim}, job.describe()
        assert job.workers[1 - victim].exit_code == 0  # and the fixture of all tests finds nothing left


DIES = """
import os, signal, numpy as np, byteps as bps
bps.init()
bps.push_pull(np.ones(3), name="x")
if bps.rank() == {victim}:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        bps.push_pull(np.ones(3), name="x")
except bps.PeerLostError as error:
    print("lost", error.role, error.rank, flush=True)
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_the_launcher_reports_the_rank_that_was_killed(victim: int) -> None:
    program = DIES.format(victim=victim)
    job = run(bpslaunch("-n", "2", sys.executable, "-c", program, **TCP))
    assert job.process.returncode == 137
    assert job.lines(f"worker {1 - victim}") == [f"lost worker {victim}"]
    assert f"worker {victim} was ended by SIGKILL" in job.said.splitlines()[-1]


FOR_EVER = """
import numpy as np, byteps as bps
bps.init()
bps.push_pull(np.ones(3), name="x")
print("running", flush=True)
while True:
    bps.push_pull(np.ones(3), name="x")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_the_launcher_is_ended_and_nothing_is_left(number: signal.Signals, code: int) -> None:
    with bpslaunch("-n", "2", sys.executable, "-c", FOR_EVER, **TCP) as job:
        job.expect("(?s)running.*running")
        job.send(number)
        assert job.end() == code


# Start-up that fails


def rank(number: int, port: int, **env: str) -> Job:
    """One rank that was started by hand."""
    root = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    place = {"BYTEPS_LOCAL_RANK": str(number), "BYTEPS_LOCAL_SIZE": "2"}
    return Job([sys.executable, "-c", PROGRAM], **root, **place, **TCP, **env)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def test_ranks_that_were_started_by_hand() -> None:
    port = free_port()
    with rank(1, port) as second, rank(0, port) as first:
        assert (first.end(), second.end()) == (0, 0), (first.said, second.said)
        assert (first.out, second.out) == (b"0 2 5.0\n", b"1 2 5.0\n")


def test_a_scheduler_that_cannot_start_ends_init_with_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = run(rank(0, port))
    assert job.process.returncode == 1
    assert (
        "JoinError: init: the scheduler of this job, which this rank had started, has ended: "
        f"ConfigError: cannot listen on 127.0.0.1:{port}" in job.said
    )


def test_a_server_that_cannot_start_ends_init_with_its_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        job = run(rank(0, free_port(), DMLC_PORT=str(taken.getsockname()[1])))
    assert job.process.returncode == 1
    assert "init: the server of this job, which this rank had started, has ended: ConfigError" in job.said
    assert "DMLC_PORT" in job.said


def test_without_a_launcher_or_an_address_the_launcher_is_named() -> None:
    job = run(Job([sys.executable, "-c", PROGRAM], BYTEPS_LOCAL_SIZE="2"))
    assert job.process.returncode == 1
    assert "bpslaunch -n 2 COMMAND" in job.said


def join_unless_last() -> str:
    import byteps as bps

    if os.environ["BYTEPS_LOCAL_RANK"] == "2":
        signal.pause()  # the job never becomes complete
    try:
        bps.init()
    except bps.JoinError as error:
        return str(error)
    return ""


def test_the_others_do_not_wait_when_rank_0_dies_before_the_job_is_complete() -> None:
    with cluster(join_unless_last, nproc=3, env=TCP) as job:
        first, second, _ = job.workers
        second.wait_line("missing worker 2")
        first.signal(signal.SIGKILL)
        second.wait()
        assert "the rank that started it ended before the job was complete" in second.result, job.describe()


# The same processes in another job


def again(rounds: int, gate: str) -> list[float]:
    import numpy as np

    import byteps as bps

    seen = []
    for _ in range(rounds):
        bps.init()
        rank = bps.rank()
        seen.append(float(bps.push_pull(np.full(9, 4.0**rank), average=False, name="x")[0]))
        bps.shutdown()
        with Path(gate).open("rb" if rank else "wb") as pipe:  # rank 1 comes back after rank 0 has left
            assert not rank or pipe.read() == b""
    return seen


def test_a_job_can_be_joined_again_after_all_have_left(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with cluster(again, nproc=2, args=(3, str(gate)), env=TCP) as job:
        assert job.wait() == [[5.0] * 3] * 2


def again_while_one_stays(rounds: int, slow: int) -> list[float]:
    import threading

    import numpy as np

    import byteps as bps

    seen = []
    for _ in range(rounds):
        bps.init()
        rank = bps.rank()
        seen.append(float(bps.push_pull(np.full(9, 4.0**rank), average=False, name="x")[0]))
        if rank == slow:
            threading.Event().wait(0.3)  # the other one is in init() by then
        bps.shutdown()
    return seen


@pytest.mark.parametrize("slow", [0, 1])
def test_a_rank_that_comes_back_waits_for_the_end_of_the_job_before(slow: int) -> None:
    with cluster(again_while_one_stays, nproc=2, args=(3, slow), env=TCP) as job:
        assert job.wait() == [[5.0] * 3] * 2


def suspended() -> list[float]:
    import numpy as np

    import byteps as bps

    seen = []
    bps.init()
    for _ in range(2):
        seen.append(float(bps.push_pull(np.full(9, 4.0 ** bps.rank()), average=False, name="x")[0]))
        bps.suspend()
        bps.resume(1, 0)
    return seen


def test_suspend_and_resume() -> None:
    with cluster(suspended, nproc=2, env=TCP) as job:
        assert job.wait() == [[5.0] * 2] * 2
