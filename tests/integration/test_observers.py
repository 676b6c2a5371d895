"""Those who look at a job from outside: answered, but never at the expense of the job."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from byteps import _core
from byteps.control import address
from byteps.control.channel import Channel
from byteps.control.hello import job_number
from byteps.control.messages import Ask, Barrier, Message, Presence, Status, encode
from byteps.observe.limited import Limited
from byteps.observe.logging import logger
from byteps.scheduler import observers
from byteps.scheduler.observers import BURST, PER_S

LIMIT_S = 30.0
JOB = job_number("job")
MEMBER = Presence("worker", 0, "host", "10.0.0.1", 1, 2, "0.1.0", None)


def frame(message: Message) -> bytes:
    return _core.encode_frame(_core.FRAME_CONTROL, JOB, 0, 0, encode(message))


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Observed:
    """A scheduler's side of one observer, which counts the questions that it answers."""

    def __init__(self, members: int) -> None:
        self.answered = 0
        self._members = [MEMBER] * members

    def status(self, number: int) -> Status:
        self.answered += 1
        return Status(number, "s", "0.1.0", 1.5, "running", "epoch 1", self._members)

    def answer(self, question: observers.Question, peer: str) -> Status:
        assert isinstance(question, Ask)
        return self.status(question.id)

    def serve(self) -> tuple[asyncio.Task[None], socket.socket]:
        with address.listen("127.0.0.1", range(1), "X") as listener:
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            peer.connect(listener.getsockname())
            sock, _ = listener.accept()
        for each in (sock, peer):
            each.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        return asyncio.ensure_future(observers.answer(sock, JOB, self.answer, Limited())), peer


def run(scenario: Coroutine[Any, Any, Any]) -> list[str]:
    """What was logged."""
    lines = Lines()
    logger.addHandler(lines)
    try:
        asyncio.run(asyncio.wait_for(scenario, LIMIT_S))
    finally:
        logger.removeHandler(lines)
    return lines.said


def test_one_that_does_not_read_is_dropped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "UNREAD_S", 0.5)
    observed = Observed(members=20_000)  # an answer has about two megabytes

    async def scenario() -> None:
        answering, peer = observed.serve()
        await asyncio.get_running_loop().sock_sendall(peer, frame(Ask(1)) * 1_000)
        await answering
        assert observed.answered == 1
        peer.close()

    (line,) = run(scenario())
    assert "the observer at 127.0.0.1:" in line and "has not read its answers for 0.5 s" in line


def test_questions_without_a_pause_are_answered_at_a_pace() -> None:
    observed = Observed(members=1)

    async def scenario() -> None:
        answering, peer = observed.serve()
        channel = await Channel.over(peer, JOB, "the scheduler")
        began = time.monotonic()
        for number in range(1_000):
            channel.send(Ask(number))
        for number in range(BURST + 5):
            status = await channel.receive()
            assert isinstance(status, Status) and status.id == number
        elapsed = time.monotonic() - began
        assert observed.answered <= BURST + 1 + PER_S * elapsed
        channel.close()
        await answering

    assert run(scenario()) == []


def test_one_that_asks_now_and_then_never_waits() -> None:
    pace = observers.Pace(0.0)
    assert [pace.wait_s(float(second)) for second in range(100)] == [0.0] * 100
    waits = [pace.wait_s(100.0) for _ in range(BURST + 3)]
    assert waits[:BURST] == [0.0] * BURST and waits[BURST:] == sorted(waits[BURST:]) and waits[-1] > 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (frame(Barrier(1)), "sent Barrier"),
        (frame(Ask(1))[:-1] + b"x", "control frame"),
        (_core.encode_frame(_core.FRAME_CONTROL, JOB, 0, 0, b"\x91" * 900), "does not decode"),
        (_core.encode_frame(_core.FRAME_CONTROL, JOB, 0, 0, b"x" * 2_000), "at most 1024 are allowed"),
    ],
    ids=["no question", "damaged", "nested", "long"],
)
def test_one_that_makes_no_sense_is_dropped_and_named(data: bytes, words: str) -> None:
    async def scenario() -> None:
        answering, peer = Observed(1).serve()
        await asyncio.get_running_loop().sock_sendall(peer, data)
        await answering
        peer.close()

    (line,) = run(scenario())
    assert "closed the connection of the observer at 127.0.0.1" in line and words in line


def test_one_that_has_gone_already_is_no_error() -> None:
    async def scenario() -> None:
        sock, peer = socket.socketpair()
        peer.close()
        await observers.answer(sock, JOB, Observed(1).answer, Limited())

    assert run(scenario()) == []
