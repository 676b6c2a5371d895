"""Without descriptors: the limit, the need and the remedy are named, whatever asked for one."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from byteps import _core
from byteps.config import load
from byteps.control import shortage
from byteps.control.address import listen
from byteps.control.meeting import Meeting
from byteps.worker.loop_thread import LoopThread


@pytest.fixture
def none_left() -> Iterator[int]:
    """A process that has used up what it may have; yields the limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    try:
        yield limit
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


EPOCH = _core.Epoch(1, ranks=["a"], hosts=["h"], children=["a"], child_of=[0], servers=[("s", 1)])
ASK: dict[str, Callable[[], object]] = {
    "heartbeats": lambda: _core.Liveness(1, 1.0, 2.0),
    "shared memory": lambda: _core.Arena(1 << 20),
    "board": lambda: _core.create_board(2),
    "server": lambda: _core.Aggregator(1, EPOCH, 1),
    "loop": lambda: LoopThread("x"),
    "listener": lambda: listen("127.0.0.1", range(1), "X"),
    "meeting": lambda: Meeting(Path("never-made.sock")),
}


@pytest.mark.parametrize("what", sorted(ASK))
def test_whoever_asks_for_a_descriptor_says_that_there_is_none(what: str, none_left: int) -> None:
    with pytest.raises(OSError) as raised:
        ASK[what]()
    assert raised.value.errno == errno.EMFILE and shortage.is_shortage(raised.value)
    text = shortage.explained(raised.value, 40)
    for words in (f"all {none_left} descriptors", "needs about 40", "ulimit -n 65536"):
        assert words in text


def test_an_error_that_is_no_shortage_is_left_as_it_is() -> None:
    error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    assert shortage.explained(error) == str(error) and not shortage.is_shortage(error)
    assert "fs.file-max" in shortage.explained(OSError(errno.ENFILE, "x"))
    assert "ulimit -u" in shortage.explained(BlockingIOError(errno.EAGAIN, "x"))


def test_what_is_needed_grows_with_the_job() -> None:
    def job(role: str, workers: int) -> int:
        return shortage.needed(
            load({"DMLC_ROLE": role, "DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": str(workers)})
        )

    for role in ("scheduler", "server", "worker"):
        assert 30 < job(role, 1) < job(role, 100) < 2_000


def test_services_take_what_they_may_have() -> None:
    check = (
        "import resource; from byteps.control.shortage import take_all; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60)); take_all(); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "(60, 60)", done.stderr
