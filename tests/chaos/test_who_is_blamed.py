"""The launcher names the culprit and nobody else: every row of the table in docs/troubleshooting.md.

A row is something that happens to one member of a job. It is run in several kinds of jobs at once, with real
processes and signals, and then it is checked what everybody said: the launcher's last line names the culprit
and the reason, whoever speaks of a loss speaks of the culprit, and the exit code is the promised one.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import sshd
from launch_job import bpslaunch

from byteps.control import procfs
from byteps.launcher.reap import descendants
from conftest import MARK

SCRIPT = str(Path(__file__).with_name("culprit_job.py"))
LIMIT_S = 20.0  # from the event to the end; 3 s and the time-outs below do on a machine of one's own
DEAF = {"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "600"}  # nothing is found by silence
FAST = {"PS_HEARTBEAT_INTERVAL": "0.2", "PS_HEARTBEAT_TIMEOUT": "2"}
COMMON = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Shape:
    """A kind of job; ``label`` is how its launcher calls a worker."""

    args: tuple[str, ...]
    label: Callable[[int], str]
    ranks: int = 2
    env: dict[str, str] = field(default_factory=dict)


RANKS = Shape(("-n", "2"), lambda rank: f"worker {rank}")
OWN_SERVER = Shape(("-n", "2"), lambda rank: f"worker {rank}", env={"BYTEPS_ENABLE_IPC": "0"})
SERVERS = Shape(("--workers", "2", "--servers", "1"), lambda rank: f"worker {rank}")
MACHINES = Shape(("--workers", "2", "-n", "2", "--servers", "1"), lambda rank: f"worker {rank}", ranks=4)
HOSTS = Shape(
    ("--env", MARK, "-H", "127.0.0.1,127.0.0.2", "--servers", "1"),
    lambda rank: f"worker {rank}@127.0.0.{rank + 1}",
)


class Running:
    """One job of a row; ``who`` is the rank that is to suffer."""

    def __init__(self, shape: Shape, way: str, who: int, env: dict[str, str], *options: str) -> None:
        self.shape = shape
        self.label = shape.label(who)
        self.root = 0  # the processes of the job are below it
        command = (sys.executable, SCRIPT, way, str(who))
        self.job = bpslaunch(*options, *shape.args, *command, **{**COMMON, **shape.env, **env})

    def formed(self) -> None:
        for rank in range(self.shape.ranks):
            self.job.expect(rf"\[{re.escape(self.shape.label(rank))}\] ready \d+")

    def pid(self, role: str) -> int:
        """Of the worker that is to suffer, of the agent that has started it, or of a service."""
        worker = int(self.job.expect(rf"\[{re.escape(self.label)}\] ready (\d+)").group(1))
        if role in ("worker", "agent"):
            return worker if role == "worker" else procfs.state_and_parent(worker)[1]
        for pid in descendants(self.root or self.job.process.pid):
            if f"-m\0byteps.{role}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"no {role} runs")

    def expect_error(self, text: str) -> None:
        """Read standard error until ``text`` is in it."""
        assert self.job.process.stderr is not None
        fd, deadline = self.job.process.stderr.fileno(), time.monotonic() + LIMIT_S
        while text not in self.job.said:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(fd, 65536) if ready else b""
            assert data, self.job.said
            self.job.err += data

    def check(self, who: str, what: str, code: int, member: str) -> None:
        """The launcher's sentence and code; and whoever speaks of a loss, speaks of this member."""
        began = time.monotonic()
        assert self.job.end() == code, self.job.said
        said = self.job.said
        assert time.monotonic() - began < LIMIT_S, said
        assert re.match(rf"bpslaunch: failed after [0-9.]+ s: {who} {what}", said.splitlines()[-1]), said
        found = r"\b(worker \d+|server \d+|scheduler) \([^()]*\),? (?:was lost|was declared lost|has left)"
        assert set(re.findall(found, said)) <= {member}, said
        repeated = re.findall(r"bpslaunch: the last .*lines? of (.*):\n", said)
        assert len(repeated) <= 1 and all(re.fullmatch(who, each) for each in repeated), said


Start = Callable[..., list[Running]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts jobs side by side: they mostly wait. What still runs at the end is ended."""
    with ExitStack() as stack:

        def run(way: str, env: dict[str, str], *jobs: tuple[Shape, int]) -> list[Running]:
            sockets = {"BYTEPS_SOCKET_PATH": str(tmp_path)}
            found = [Running(shape, way, who, {**env, **sockets}) for shape, who in jobs]
            for each in found:
                stack.enter_context(each.job)
            return found

        yield run


STOPPED = r"was lost: no heartbeat came for .*; its process \d+ is stopped \(SIGSTOP\)"
KILLED = r"was ended by SIGKILL \(code 137\)"
TERMINATED = r"was ended by SIGTERM \(code 143\)"
UNEVEN = r"exited with code 0 too early: it left after 5 operations, and worker \d .*still needed it .*uneven"

# What a rank does by itself: the name of it in culprit_job.py, the launcher's words, and the code.
BY_ITSELF = {
    "an exception": ("raise", "exited with code 1: ValueError: loss is nan", 1),
    "an exception, others wrap the loss": ("others wrap", "exited with code 1: ValueError: loss is nan", 1),
    "an exception, others exit at once": ("others exit", "exited with code 1: ValueError: loss is nan", 1),
    "an exception, its interpreter hangs": ("slow", "failed: ValueError: loss is nan", 1),
    "sys.exit(7)": ("exit", "exited with code 7", 7),
    "a crash": ("segfault", r"was ended by SIGSEGV \(code 139\)", 139),
    "fewer batches than others": ("uneven", UNEVEN, 1),
    "fewer batches, others at a barrier": ("barrier", UNEVEN, 1),
    "os._exit(0) in the middle": ("vanish", "exited with code 0 too early: its connection closed", 1),
    "an error before init()": ("import", "exited with code 1", 1),
}


@pytest.mark.parametrize("event", BY_ITSELF)
def test_a_rank_comes_to_its_end_by_itself(event: str, start: Start) -> None:
    way, what, code = BY_ITSELF[event]
    jobs = [(RANKS, 0), (RANKS, 1), (SERVERS, 1)]
    jobs += [(MACHINES, 0)] if way in ("raise", "uneven") else []
    for job, (_, who) in zip(start(way, DEAF, *jobs), jobs, strict=True):
        job.check(job.label, what, code, f"worker {who}")


def test_a_rank_has_no_memory_for_what_it_declares(start: Start) -> None:
    what = r"exited with code 1: OutOfMemoryError: y\.\d+: worker 1: .*no memory for \d+ bytes.*RLIMIT_AS"
    jobs = [(SERVERS, 1), (MACHINES, 1)]
    for job in start("memory", DEAF, *jobs):
        job.check(job.label, what, 1, "worker 1")


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("all raise", "ValueError: loss is nan"),
        ("refused", "JoinError: .*BYTEPS_PARTITION_BYTES=.*set it alike"),
    ],
)
def test_an_error_of_several_is_that_of_one_of_them(way: str, text: str, start: Start) -> None:
    """All have it, or two have settings that differ and whoever came second was refused."""
    for job in start(way, DEAF, (RANKS, 0), (SERVERS, 0), (MACHINES, 0)):
        assert job.job.end() == 1
        end = rf"failed after [0-9.]+ s: (rank|worker) [0-9.]+ exited with code 1: {text}"
        assert re.search(end, job.job.said.splitlines()[-1]), job.job.said


# What is done to a member: role and signal; in which jobs, the launcher's words, and the code.
SIGNALS = {
    ("worker", signal.SIGKILL): (((RANKS, 0), (RANKS, 1), (SERVERS, 1), (MACHINES, 1)), DEAF, KILLED, 137),
    ("worker", signal.SIGSTOP): (((RANKS, 0), (RANKS, 1), (SERVERS, 1), (MACHINES, 1)), FAST, STOPPED, 1),
    ("scheduler", signal.SIGKILL): (((RANKS, 0), (SERVERS, 0), (MACHINES, 0)), DEAF, KILLED, 137),
    ("scheduler", signal.SIGTERM): (((RANKS, 0), (SERVERS, 0)), DEAF, TERMINATED, 143),
    ("scheduler", signal.SIGSTOP): (((RANKS, 0), (SERVERS, 0)), FAST, r"was lost: .*stopped \(SIGSTOP\)", 1),
    ("server", signal.SIGKILL): (((OWN_SERVER, 0), (SERVERS, 0), (MACHINES, 0)), DEAF, KILLED, 137),
    ("server", signal.SIGTERM): (((SERVERS, 0),), DEAF, TERMINATED, 143),
    ("server", signal.SIGSTOP): (((SERVERS, 0), (MACHINES, 0)), FAST, STOPPED, 1),
}


@pytest.mark.parametrize(("role", "number"), SIGNALS, ids=[f"{role} {n.name}" for role, n in SIGNALS])
def test_a_signal_for_one_of_them(role: str, number: signal.Signals, start: Start) -> None:
    jobs, env, what, code = SIGNALS[role, number]
    running = start("run", env, *jobs)
    for job in running:
        job.formed()
        os.kill(job.pid(role), number)
    for job, (_, who) in zip(running, jobs, strict=True):
        member = {"worker": f"worker {who}", "server": "server 0", "scheduler": "scheduler"}[role]
        name = job.label if role == "worker" else rf"{member}( \(host .*\))?"
        job.check(name, what, code, member)


def test_a_stopped_rank_is_named_though_the_others_compute(start: Start) -> None:
    """They come to no operation that could fail for minutes: the scheduler is believed without them."""
    running = start("others compute", FAST, (RANKS, 1), (SERVERS, 1))
    for job in running:
        job.formed()
        os.kill(job.pid("worker"), signal.SIGSTOP)
    for job in running:
        job.check(job.label, STOPPED, 1, "worker 1")


def test_who_is_silent_and_then_dies_is_told_by_its_death(start: Start) -> None:
    """As one whose core is written: it says nothing for seconds, and then it ends."""
    running = start("run", {**FAST, "BYTEPS_LOG_LEVEL": "INFO"}, (RANKS, 1), (SERVERS, 1))
    for job in running:
        job.formed()
        os.kill(job.pid("worker"), signal.SIGSTOP)
    for job in running:
        job.expect_error("was lost: no heartbeat")
        os.kill(job.pid("worker"), signal.SIGKILL)
    for job in running:
        job.check(job.label, KILLED, 137, "worker 1")


def test_a_rank_that_never_comes(start: Start) -> None:
    """Nobody has failed, and nobody is blamed: the launcher repeats who is missing."""
    for job in start("never", {"BYTEPS_CONNECT_TIMEOUT_S": "2"}, (RANKS, 1), (SERVERS, 1)):
        assert job.job.end() == 1, job.job.said
        last = job.job.said.splitlines()[-1]
        assert re.search(r"failed after [0-9.]+ s: (this (worker|server) could|the job did) not", last), last
        assert re.search(r"missing worker 1", last), last


def test_a_rank_that_lives_and_does_not_push(start: Start) -> None:
    """Whoever waited in vain names it, and is not taken for the reason."""
    for job in start(
        "idle", {**DEAF, "BYTEPS_OP_TIMEOUT_S": "3", "BYTEPS_STALL_WARN_S": "1"}, (RANKS, 1), (SERVERS, 1)
    ):
        assert job.job.end() == 1, job.job.said
        last = job.job.said.splitlines()[-1]
        assert re.search(r"failed after [0-9.]+ s: x .*no result after \d+ s, waiting for worker 1 ", last), (
            last
        )


# ---- parts of a job that are started by hand: each launcher knows its own processes only


def test_a_launcher_that_has_only_noticed_names_whom_it_was_told_of(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    env = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": port, "DMLC_NUM_WORKER": "2"}
    env |= {"DMLC_NUM_SERVER": "1", "BYTEPS_JOB_ID": f"by-hand-{port}", **COMMON, **DEAF}
    with ExitStack() as stack:
        services = [stack.enter_context(bpslaunch(DMLC_ROLE=role, **env)) for role in ("scheduler", "server")]
        command = (sys.executable, SCRIPT, "run", "1")
        workers = [
            stack.enter_context(bpslaunch(*command, DMLC_ROLE="worker", DMLC_WORKER_ID=str(n), **env))
            for n in range(2)
        ]
        pids = [int(worker.expect(r"ready (\d+)").group(1)) for worker in workers]
        os.kill(pids[1], signal.SIGKILL)
        assert [worker.end() for worker in workers] == [1, 137], workers[0].said
        own, other = (worker.said.splitlines()[-1] for worker in workers)
        lost = rf"worker 1 \(host .*, pid {pids[1]}\) was lost: its connection closed"
        assert re.search(rf"failed after [0-9.]+ s: {lost}", own), own
        assert re.search(rf"failed after [0-9.]+ s: worker 1 {KILLED}", other), other
        for service in services:
            assert service.end() == 1 and re.search(lost, service.said), service.said


# ---- several hosts: agents report, the same launcher judges


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as found:
        yield found


ON_HOSTS = {
    "an exception": ("raise", "worker", 0, DEAF, "exited with code 1: ValueError: loss is nan", 1),
    "an exception, its interpreter hangs": ("slow", "worker", 0, DEAF, "failed: ValueError: loss is nan", 1),
    "fewer batches than others": ("uneven", "worker", 0, DEAF, UNEVEN, 1),
    "a rank is killed": ("run", "worker", signal.SIGKILL, DEAF, KILLED, 137),
    "a rank is stopped": ("run", "worker", signal.SIGSTOP, FAST, STOPPED, 1),
    "the scheduler is killed": ("run", "scheduler", signal.SIGKILL, DEAF, KILLED, 137),
    "the server is stopped": ("run", "server", signal.SIGSTOP, FAST, STOPPED, 1),
    "an agent is killed": ("run", "agent", signal.SIGKILL, DEAF, KILLED, 137),
}


@pytest.mark.parametrize("event", ON_HOSTS)
def test_on_several_hosts(event: str, server: sshd.Sshd) -> None:
    way, role, number, env, what, code = ON_HOSTS[event]
    running = Running(HOSTS, way, 1, env, "--ssh", server.ssh)
    running.root = server.pid
    with running.job:
        if number:
            running.formed()
            os.kill(running.pid(role), number)
        member = {"server": "server 0", "scheduler": "scheduler"}.get(role, "worker 1")
        name = running.label if member == "worker 1" else rf"{member}@127\.0\.0\.[12]"
        running.check(name, what, code, member)
