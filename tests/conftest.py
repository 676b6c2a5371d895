"""What all tests share: printed seeds, and a check that no test leaves a process behind."""

from __future__ import annotations

import errno
import itertools
import os
import random
import resource
import secrets
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

# One seed for the whole run, so that the line in the header is enough to repeat any failure.
SEED = int(os.environ.get("BYTEPS_TEST_SEED") or secrets.randbelow(2**31))
os.environ["BYTEPS_TEST_SEED"] = str(SEED)  # xdist's processes and the children of tests use the same one

# A job's variables in the developer's shell must not change what the tests see. How much is logged may.
for _name in [name for name in os.environ if name.startswith(("BYTEPS_", "DMLC_"))]:
    if _name not in ("BYTEPS_TEST_SEED", "BYTEPS_LOG_LEVEL"):
        del os.environ[_name]

os.environ["BYTEPS_FLIGHT_S"] = "0"  # jobs that fail here on purpose need not leave their last seconds

# Every test's processes inherit this variable with a value that no other test and no other run has.
MARK = "PYTEST_BYTEPS_MARK"
_marks = (f"{secrets.token_hex(8)}-{count}" for count in itertools.count())
# Helpers of Python's own that live as long as the process that started them.
_STANDING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
GRACE_S = 2.0


def pytest_report_header() -> str:
    return f"seed: {SEED} (repeat with BYTEPS_TEST_SEED={SEED})"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test, from the run's seed and the test's name; printed, so that a failure shows it."""
    value = random.Random(f"{SEED}:{request.node.nodeid}").getrandbits(32)
    print(f"seed {value}; repeat with BYTEPS_TEST_SEED={SEED}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A random number generator that starts from ``seed``."""
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    """A test fails when a process that it started still runs after it, and the process is killed.

    Direct children are found below /proc/self, orphans by MARK in their environment. All processes are only
    looked through when the test did start some, so the check costs well under a millisecond elsewhere.
    """
    before, reaped = _children(), _reaped()
    os.environ[MARK] = mark = next(_marks)
    yield
    left = _children() - before
    if left or _reaped() != reaped:
        left |= _marked(mark)
    # One that is just about to exit is no leak.
    deadline = time.monotonic() + GRACE_S
    strays = {pid: text for pid in left if not _ends_by(pid, deadline) and (text := _describe(pid))}
    for pid in strays:
        _kill(pid)
    if strays:
        pytest.fail("the test left processes behind:\n" + "\n".join(strays.values()), pytrace=False)


def _children() -> set[int]:
    """Processes whose parent is this one, whichever thread started them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except OSError:  # the thread has ended meanwhile
            continue
    return {pid for pid in found if not any(word in _command(pid) for word in _STANDING)}


def _reaped() -> int:
    """Changes whenever a child has ended and been waited for: every process has page faults."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _marked(mark: str) -> set[int]:
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
            except OSError:  # gone, or not ours to read
                continue
    return {pid for pid in found if not any(word in _command(pid) for word in _STANDING)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _describe(pid: int) -> str:
    """Process, state and command line; empty for one that has gone or is only waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if state == "Z" else f"  {pid} [{state}] {_command(pid)}"


def _ends_by(pid: int, deadline: float) -> bool:
    """Wait with a pidfd, which becomes readable when the process ends, and reap it if it is a child."""
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        return error.errno == errno.ESRCH
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        ended = bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(fd)
    if ended:
        _reap(pid)
    return ended


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:  # an orphan, or reaped by its Popen
        pass


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    _ends_by(pid, time.monotonic() + GRACE_S)
