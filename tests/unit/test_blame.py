"""What processes say of failures: over a pipe, in which words, and who hears it."""

from __future__ import annotations

import os
import select
import selectors
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from byteps.control import blame
from byteps.control.blame import Failed, Joined, Noticed, Statement, Verdict, Whom
from byteps.control.loss import loss, told
from byteps.control.messages import Lost
from byteps.errors import JoinError, JoinTimeoutError, OperationTimeoutError, PeerLostError
from byteps.launcher.ear import Ear
from byteps.scheduler import statement
from byteps.scheduler.events import End
from byteps.worker.autopsy import finding

ME = Whom("worker", 1, "b", 7)
OTHER = Whom("server", 0, "c", 9)
EVERY: list[Statement] = [
    Joined(ME),
    Failed(ME, "ValueError: x"),
    Noticed(ME, None, "text"),
    Noticed(ME, OTHER, "text"),
    Verdict(ME, OTHER, "text", 137),
]


class Heard:
    """An ear, and what it has heard."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.said: list[tuple[int, Statement]] = []
        self.ear = Ear(self.selector, lambda process, statement: self.said.append((process, statement)))
        self.ends: list[int] = []

    def open(self, process: int) -> int:
        self.ends.append(self.ear.open(process))
        return self.ends[-1]

    def close(self) -> None:
        for fd in self.ends:
            os.close(fd)
        self.ear.catch_up()
        assert not self.selector.get_map()  # every pipe is closed at its end
        self.selector.close()


def test_statements_cross_a_pipe_whole() -> None:
    heard = Heard()
    first, second = blame.describe(heard.open(0)), blame.describe(heard.open(3))
    for each in EVERY:
        blame.tell(first, each)
        blame.tell(second, each)
    heard.ear.catch_up()
    assert heard.said == [(process, each) for process in (0, 3) for each in EVERY]
    heard.close()


def test_a_line_comes_in_parts_and_between_others() -> None:
    """The user's program has the pipe, too, and may write anything into it, as often as it likes."""
    heard = Heard()
    fd = heard.open(0)
    for data in (
        b"hello\n\xff\n{}\n[1",
        b'2]\n{"type": "joined"',
        b', "who": {"role": "worker", "rank": 2}}\n',
    ):
        os.write(fd, data)
        heard.ear.catch_up()
    assert heard.said == [(0, Joined(Whom("worker", 2)))]
    for _ in range(200):
        blame.tell(blame.describe(fd), EVERY[0])
    heard.ear.catch_up()
    assert len(heard.said) < 200
    heard.close()


def test_without_a_launcher_nothing_is_said() -> None:
    read, write = os.pipe()
    value = blame.describe(write)
    os.close(write)
    with Path(os.devnull).open("rb") as other:  # the number is somebody else's now
        assert blame.descriptor(f"{other.fileno()}:{value.partition(':')[2]}") is None
    for gone in (value, "", "x", "7", "99999999999999999999:1", f"{read}:"):
        blame.tell(gone, EVERY[0])
    os.close(read)


def test_a_launcher_that_does_not_listen_delays_nobody() -> None:
    read, write = os.pipe()
    began = time.monotonic()
    for _ in range(5_000):
        blame.tell(blame.describe(write), Failed(ME, "x" * 500))
    assert time.monotonic() - began < 30
    os.close(read)
    blame.tell(blame.describe(write), EVERY[0])
    os.close(write)


def wrapped() -> BaseException:
    try:
        try:
            raise loss(OTHER, "its connection closed")
        except PeerLostError as error:
            raise RuntimeError("training failed") from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("loss\nis nan"), Failed(ME, "ValueError: loss")),
        (ValueError(""), Failed(ME, "ValueError: ")),
        (ValueError("\x1b[2Jred"), Failed(ME, r"ValueError: \x1b[2Jred")),
        (JoinError("refused"), Failed(ME, "JoinError: refused")),
        (loss(OTHER, "its connection closed"), Noticed(ME, OTHER, "its connection closed")),
        (PeerLostError("x: it left", "worker", 0, "a"), Noticed(ME, Whom("worker", 0, "a"), "x: it left")),
        (PeerLostError("somebody is gone"), Noticed(ME, None, "somebody is gone")),
        (wrapped(), Noticed(ME, OTHER, "its connection closed")),
        (JoinTimeoutError("missing worker 1"), Noticed(ME, None, "missing worker 1")),
        (OperationTimeoutError("waits for worker 1"), Noticed(ME, None, "waits for worker 1")),
    ],
)  # fmt: skip
def test_words(error: BaseException, said: Statement) -> None:
    assert blame.words(ME, error) == said


def test_a_statement_is_written_in_one_piece() -> None:
    """However long and strange the text: less than PIPE_BUF, so lines of two processes never mix."""
    whom = Whom("worker", 1 << 30, "h" * 64, 1 << 22)
    for letters in ("\U0001f600", '"\\', "\x00"):
        long = blame.words(whom, loss(whom, letters * 10_000))
        assert len(msgspec.json.encode(long)) < select.PIPE_BUF


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (End(0, "all workers are done"), None),
        (
            End(1, "worker 1 was lost", "PeerLostError", Lost("worker", 1, "b", "no heartbeat", 7)),
            Verdict(statement.SELF, ME, "no heartbeat"),
        ),
        (End(1, "missing worker 1", "JoinTimeoutError"), Verdict(statement.SELF, None, "missing worker 1")),
        (End(143, "it got SIGTERM"), Failed(statement.SELF, "it got SIGTERM", 143)),
        (End(1, "the rank that started it ended"), None),
    ],
)
def test_what_the_scheduler_says_of_an_end(end: End, said: Statement | None) -> None:
    assert statement.of(end) == said


@pytest.mark.parametrize(
    ("code", "is_stopped", "expected"),
    [
        (-9, False, ("it was ended by SIGKILL", 137)),
        (-40, False, ("it was ended by signal 40", 168)),
        (1, False, ("it exited with code 1", 1)),
        (None, True, ("its process is stopped (SIGSTOP)", 0)),
        (None, False, None),
    ],
)
def test_how_a_process_that_a_rank_started_ended(code: int | None, is_stopped: bool, expected: Any) -> None:
    found = finding(OTHER, code, is_stopped)
    assert (None if found is None else (found.text, found.code)) == expected


class TestLoss:
    MESSAGE = Lost("worker", 1, "b", "no heartbeat came for 10 s", 7, 1_000_000_000.0)

    def test_of_another(self) -> None:
        error = told(self.MESSAGE, "worker", 0)
        assert str(error).startswith("worker 1 (host b, pid 7) was lost: no heartbeat came for 10 s; ")
        assert (error.role, error.rank, error.host, error.pid) == ("worker", 1, "b", 7)

    def test_of_oneself_says_when_and_why_and_not_that_the_scheduler_was_lost(self) -> None:
        error = told(self.MESSAGE, "worker", 1)
        at = time.strftime("%H:%M:%S", time.localtime(1_000_000_000))
        assert str(error).startswith(
            f"this process, worker 1 (host b, pid 7), was declared lost by the scheduler at {at}: "
        )
        assert "no heartbeat came for 10 s" in str(error) and error.reason == "no heartbeat came for 10 s"
        assert str(told(self.MESSAGE, "server", 1)).startswith("worker 1 (host b, pid 7) was lost")


def test_a_program_that_never_ends_its_line_takes_no_memory_and_hides_nothing() -> None:
    heard = Heard()
    fd = heard.open(0)
    for _ in range(50):
        os.write(fd, b"x" * 60_000)
        heard.ear.catch_up()
    assert len(heard.ear._begun[0]) <= select.PIPE_BUF
    os.write(fd, b"\n")
    blame.tell(blame.describe(fd), EVERY[0])
    heard.ear.catch_up()
    assert heard.said == [(0, EVERY[0])]
    heard.close()


def test_a_program_that_goes_on_writing_does_not_hold_us_up(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    heard.open(0)
    monkeypatch.setattr(os, "read", lambda fd, count: b"x\n" * 100)
    heard.ear.catch_up()  # comes back
    monkeypatch.undo()
    heard.close()
