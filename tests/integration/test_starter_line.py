"""The line between rank 0 and what it has started: a socket pair stands for the process at its other end."""

from __future__ import annotations

import asyncio
import socket
import subprocess

import pytest

from byteps.control import starter
from byteps.errors import JoinError
from byteps.worker.services import Service, beside


def service() -> tuple[Service, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    process: subprocess.Popen[bytes] = subprocess.Popen.__new__(subprocess.Popen)
    process.returncode = 0
    return Service("scheduler", process, ours), theirs


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def test_work_goes_on_while_the_process_lives() -> None:
    async def answer() -> int:
        return 42

    started, theirs = service()
    with theirs, started.line:
        assert asyncio.run(beside([started], answer())) == 42
        assert asyncio.run(beside([], answer())) == 42


@pytest.mark.parametrize(
    ("words", "expected"),
    [(b"ConfigError: port 1 is taken", "has ended: ConfigError: port 1 is taken"), (b"", "did not say why")],
)
def test_its_end_ends_the_work_with_its_reason(words: bytes, expected: str) -> None:
    started, theirs = service()
    theirs.sendall(words)
    theirs.close()
    with started.line, pytest.raises(JoinError, match=expected):
        asyncio.run(beside([started], never()))


def test_what_the_work_itself_says_goes_before() -> None:
    async def refused() -> None:
        await asyncio.sleep(0)
        raise JoinError("the scheduler said no")

    started, theirs = service()
    theirs.close()
    with started.line, pytest.raises(JoinError, match="the scheduler said no"):
        asyncio.run(beside([started], refused()))


# The other end


def test_the_started_process_notices_when_the_rank_is_gone() -> None:
    async def wait() -> str:
        ours, theirs = socket.socketpair()
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with theirs:
            starter.watch(theirs.fileno(), lambda: gone.set_result("gone"))
            ours.close()
            return await asyncio.wait_for(gone, 30)

    assert asyncio.run(wait()) == "gone"


def test_last_words_are_heard_or_lost_and_never_raise() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            starter.tell(theirs.fileno(), "words \ud800" + "x" * 100_000)
            assert ours.recv(1 << 20).startswith(b"words ?xxx")
        starter.tell(theirs.fileno(), "to nobody")
    starter.tell(None, "without a line")
