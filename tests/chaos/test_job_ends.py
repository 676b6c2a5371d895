"""Every way in which a job on one machine can end: within 3 s no process, port, socket or memory is left.

Real ranks, in the middle of real push_pulls, with children of their own: one in their process group and one
in a session of its own.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from launch_job import Job, bpslaunch, child_of, ended

from byteps.launcher.reap import descendants

LIMIT_S = 3.0
SLACK_S = 3.0  # for a machine that runs other things; Times() itself is checked by a unit test

RANK = """
import os, signal, subprocess, sys
import numpy as np, byteps
way = sys.argv[1]
if way == "deaf":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["sleep", "1000"], start_new_session=True)
byteps.init()
x = np.ones(1 << 16, np.float32)
step = 0
while True:
    assert byteps.push_pull(x, name="x", average=False)[0] == byteps.size()
    step += 1
    if step == 3:
        print("ready", flush=True)
    if step == 50 and way == "normal":
        break
    if step == 50 and way == "exception" and byteps.rank() == 1:
        raise SystemExit(7)
"""
SHAPES = {"ranks": ("-n", "3"), "servers": ("--workers", "2", "--servers", "1")}


@dataclass
class Traces:
    """What a job has on this machine while it runs."""

    processes: set[int]
    ports: set[int]


def _inodes(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        try:
            links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        found |= {link[8:-1] for link in links if link.startswith("socket:[")}
    return found


def listening() -> dict[int, str]:
    """Listening TCP ports of this machine, with the inode of a socket."""
    found = {}
    for name in ("tcp", "tcp6"):
        table = Path(f"/proc/net/{name}")
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            if fields[3] == "0A":
                found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def traces(job: Job) -> Traces:
    processes = set(descendants(job.process.pid))
    own = _inodes(processes)
    return Traces(processes, {port for port, inode in listening().items() if inode in own})


@pytest.fixture
def shared_memory() -> Iterator[None]:
    """Nothing of ours may appear in /dev/shm: memory of ranks has no name."""
    folder = Path("/dev/shm")
    before = set(folder.iterdir())
    yield
    assert not [path for path in set(folder.iterdir()) - before if "byteps" in path.name]


def check_gone(found: Traces, folder: Path) -> None:
    left = [pid for pid in found.processes if not ended(pid)]
    assert not left
    assert not found.ports & listening().keys()
    assert list(folder.iterdir()) == []  # the Unix sockets of the job


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", ["normal", "exception", "INT", "TERM", "deaf", "front", "supervisor"])
def test_nothing_is_left(way: str, shape: str, tmp_path: Path) -> None:
    mode = way if way in ("normal", "exception", "deaf") else "run"
    env = {"BYTEPS_SOCKET_PATH": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    with bpslaunch(*SHAPES[shape], sys.executable, "-c", RANK, mode, **env) as job:
        ranks = 3 if shape == "ranks" else 2
        if mode == "run" or mode == "deaf":
            job.expect(r"(?s)" + ".*".join([r"ready"] * ranks))
        else:
            job.expect("ready")
        found = traces(job)
        assert mode != "run" or (found.ports and len(found.processes) >= 3 * ranks)
        began = time.monotonic()
        if way in ("INT", "TERM", "deaf"):
            number = signal.SIGINT if way == "INT" else signal.SIGTERM
            job.send(number)
            assert job.end() == 128 + number, job.said
        elif way == "front":
            job.send(signal.SIGKILL)
            assert job.end() == -signal.SIGKILL
        elif way == "supervisor":
            os.kill(child_of(job.process.pid), signal.SIGKILL)
            assert job.end() == 128 + signal.SIGKILL
        else:
            assert job.end() == (7 if way == "exception" else 0), job.said
        check_gone(found, tmp_path)
        if way not in ("normal", "exception"):  # those work for a while before they end
            assert time.monotonic() - began < LIMIT_S + SLACK_S
    if way == "exception":
        assert re.search(r"failed after [0-9.]+ s: worker 1 exited with code 7", job.said)


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_that_is_killed_while_it_forms(shape: str, tmp_path: Path) -> None:
    """One rank never comes; the launcher is killed in the middle."""
    code = (
        "import os, byteps\n"
        "print('ready', flush=True)\n"
        "if os.environ['RANK'] == '1': import signal; signal.pause()\n"
        "byteps.init()\n"
    )
    with bpslaunch(*SHAPES[shape], sys.executable, "-c", code, BYTEPS_SOCKET_PATH=str(tmp_path)) as job:
        job.expect(r"(?s)ready.*ready")
        found = traces(job)
        job.send(signal.SIGTERM)
        assert job.end() == 143
        check_gone(found, tmp_path)


def test_ten_jobs_at_once_do_not_meet(tmp_path: Path) -> None:
    """Each with ranks, ports and names of its own; half of them with a server."""
    code = (
        "import numpy as np, sys, byteps\n"
        "byteps.init()\n"
        "number = int(sys.argv[1])\n"
        "x = np.full(1000, number * 4.0 ** byteps.rank(), np.float32)\n"
        "for step in range(5):\n"
        "    got = byteps.push_pull(x, name='the same in all jobs', average=False)\n"
        "    assert (got == number * 5.0).all(), got\n"
        "byteps.barrier()\n"
        "print('sum', got[0], flush=True)\n"
    )
    shapes = (("-n", "2"), ("--workers", "2", "--servers", "1"))
    env = {"BYTEPS_SOCKET_PATH": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    jobs = [
        bpslaunch(*shapes[number % 2], sys.executable, "-c", code, str(number), **env) for number in range(10)
    ]
    try:
        for number, job in enumerate(jobs):
            assert job.end() == 0, job.said
            assert job.out.decode().count(f"sum {number * 5.0}") == 2
    finally:
        for job in jobs:
            job.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []
