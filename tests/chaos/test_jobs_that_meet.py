"""Two jobs at one address, each role started by hand: nobody ends well with a sum of strangers, ever."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SENTENCE = "two jobs use this port; set DMLC_PS_ROOT_PORT or BYTEPS_JOB_ID"
LIMIT_S = 60.0

# What a worker is worth says whose it is: a sum with a worker of the other job is none of the two right ones.
PROGRAM = """
import sys, threading, numpy as np, byteps as bps
bps.init()
for _ in range(40):
    total = bps.push_pull(np.full(3, float(sys.argv[1])), average=False, name="x")
    print("sum", int(total[0]), flush=True)
    threading.Event().wait(0.02)
"""
WORTH = {"A": (1, 4), "B": (16, 64)}


@dataclass
class Started:
    job: str
    role: str
    process: subprocess.Popen[bytes]
    said: Path

    @property
    def output(self) -> str:
        return self.said.read_text(errors="replace")

    @property
    def sums(self) -> set[int]:
        return {int(line.split()[1]) for line in self.output.splitlines() if line.startswith("sum ")}


class Attack:
    """Starts processes of both jobs, in some order, and looks at how they end."""

    def __init__(self, folder: Path, scripts: dict[str, Path], ports: dict[str, int], **env: str) -> None:
        self._folder = folder
        self._scripts = scripts
        self._ports = ports
        self._env = env
        self.started: list[Started] = []

    def start(self, job: str, role: str, number: int, **more: str) -> None:
        env = {
            **os.environ,
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(self._ports[job]),
            "DMLC_NUM_WORKER": "2",
            "DMLC_NUM_SERVER": "1",
            "DMLC_ROLE": role,
            "BYTEPS_CONNECT_TIMEOUT_S": "10",
            "OMP_NUM_THREADS": "1",
            **self._env,
            **more,
        }
        command = [sys.executable, "-m", f"byteps.{role}"]
        if role == "worker":
            env.setdefault("DMLC_WORKER_ID", str(number))
            command = [sys.executable, str(self._scripts[job]), str(WORTH[job][number])]
        said = self._folder / f"{len(self.started)}-{job}-{role}-{number}.log"
        with said.open("wb") as out:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=self._scripts[job].parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.started.append(Started(job, role, process, said))

    def end(self) -> None:
        """Wait for the workers; who is left after them has nobody to serve."""
        deadline = time.monotonic() + LIMIT_S
        try:
            for each in self.workers():
                each.process.wait(max(0.1, deadline - time.monotonic()))
        finally:
            for each in self.started:
                if each.process.poll() is None:
                    each.process.kill()
                each.process.wait(10)
            for port in set(self._ports.values()):
                _wait_until_nobody_listens(port)

    def workers(self) -> list[Started]:
        return [each for each in self.started if each.role == "worker"]

    def describe(self) -> str:
        return "\n".join(
            f"--- {each.job} {each.role} exit {each.process.returncode}\n{each.output}"
            for each in self.started
        )

    def check(self) -> None:
        """The oracle."""
        for worker in self.workers():
            right = sum(WORTH[worker.job])
            if worker.process.returncode == 0:
                assert worker.sums == {right}, f"a wrong sum and exit status 0\n{self.describe()}"
        ended_well = {each.job for each in self.workers() if each.process.returncode == 0}
        assert len(ended_well) < 2, f"two jobs cannot both have had this port\n{self.describe()}"
        jobs = {each.job for each in self.started if SENTENCE in each.output}
        assert jobs >= {"A", "B"} - ended_well, f"nobody was told why\n{self.describe()}"


def _wait_until_nobody_listens(port: int) -> None:
    """A scheduler that a rank has started may stay a few seconds, for those that are still to come."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.recv(1)  # until it ends


EVERYBODY = [
    (job, role, number)
    for job in "AB"
    for role, number in (("scheduler", 0), ("server", 0), ("worker", 0), ("worker", 1))
]

RANKS = [each for each in EVERYBODY if each[1] == "worker"]
ONE_MACHINE = {
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "0",
    "DMLC_WORKER_ID": "0",
    "BYTEPS_LOCAL_SIZE": "2",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def scripts_in(folder: Path, alike: bool) -> dict[str, Path]:
    found = {}
    for job in "AB":
        home = folder / ("home" if alike else f"home-{job}")
        home.mkdir(exist_ok=True)
        found[job] = home / "train.py"
        found[job].write_text(PROGRAM)
    return found


def attack(made: Attack, order: Sequence[tuple[str, str, int]], rng: random.Random, **place: str) -> None:
    try:
        for job, role, number in order:
            own = {"BYTEPS_LOCAL_RANK": str(number)} if "BYTEPS_LOCAL_SIZE" in place else {}
            made.start(job, role, number, **place, **own)
            time.sleep(rng.choice((0.0, 0.0, 0.05, 0.3)))  # the attack itself: they come at different moments
    finally:
        made.end()


@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("alike", [True, False], ids=["the same script", "two folders"])
def test_two_jobs_at_one_address_never_train_together(
    alike: bool, turn: int, tmp_path: Path, seed: int
) -> None:
    rng, port = random.Random(seed), free_port()
    made = Attack(tmp_path, scripts_in(tmp_path, alike), {"A": port, "B": port})
    attack(made, rng.sample(EVERYBODY, len(EVERYBODY)), rng)
    made.check()


@pytest.mark.parametrize("turn", range(3))
def test_two_jobs_on_one_machine_never_train_together(turn: int, tmp_path: Path, seed: int) -> None:
    """Rank 0 of each starts a scheduler, and opens the Unix socket over which ranks of its machine meet."""
    rng, port = random.Random(seed), free_port()
    made = Attack(tmp_path, scripts_in(tmp_path, alike=True), {"A": port, "B": port})
    attack(made, rng.sample(RANKS, len(RANKS)), rng, **ONE_MACHINE)
    made.check()


def test_machines_of_two_jobs_with_ports_of_their_own_share_nothing(tmp_path: Path) -> None:
    """One job id, one machine: their ranks must not meet over the Unix socket of the other job either."""
    made = Attack(tmp_path, scripts_in(tmp_path, alike=True), {"A": free_port(), "B": free_port()})
    try:
        for job, role, number in RANKS:
            made.start(job, role, number, **ONE_MACHINE, BYTEPS_LOCAL_RANK=str(number))
    finally:
        made.end()
    for worker in made.workers():
        assert worker.process.returncode == 0, made.describe()
        assert worker.sums == {sum(WORTH[worker.job])}, made.describe()
