"""The processes of a benchmark: answers, deaths, errors and silence; every message names the member."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from byteps.errors import BytePSError
from byteps.tools.bench.members import Members

TIMEOUT_S = 30

PROGRAM = """
import os, sys
from byteps.tools.bench.member import serve

def die(request):
    print("last words", flush=True)
    os._exit(7)

def wrong(request):
    raise ValueError("no such tensor")

print("a library that prints")
serve({
    "add": lambda request: {"sum": request["a"] + request["b"]},
    "die": die,
    "wrong": wrong,
    "wait": lambda request: sys.stdin.buffer.readline() and {},
})
"""


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    (tmp_path / "bench_member_program.py").write_text(PROGRAM)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with Members(tmp_path) as started:
        for name in ("worker 0", "worker 1"):
            started.start(name, "bench_member_program", {**os.environ, "PYTHONPATH": path})
        yield started


def test_members_answer_and_leave(members: Members) -> None:
    requests = {"worker 0": {"do": "add", "a": 1, "b": 2}, "worker 1": {"do": "add", "a": 3, "b": 4}}
    for _ in range(3):
        assert members.ask(requests, TIMEOUT_S) == {"worker 0": {"sum": 3}, "worker 1": {"sum": 7}}
    members.leave({name: {"do": "leave"} for name in requests}, TIMEOUT_S)


def test_a_member_that_dies_is_named_with_its_last_lines(members: Members) -> None:
    with pytest.raises(BytePSError, match=r"(?s)worker 1 exited with status 7.*\[worker 1\] last words"):
        members.ask({"worker 0": {"do": "wait"}, "worker 1": {"do": "die"}}, TIMEOUT_S)


def test_a_member_that_was_not_asked_is_watched_too(members: Members) -> None:
    os.kill(members.pid("worker 1"), signal.SIGKILL)
    with pytest.raises(BytePSError, match="worker 1 was ended by SIGKILL"):
        members.ask({"worker 0": {"do": "wait"}}, TIMEOUT_S)


def test_what_a_handler_raises_is_told(members: Members) -> None:
    with pytest.raises(BytePSError, match="worker 0 failed: ValueError: no such tensor"):
        members.ask({"worker 0": {"do": "wrong"}}, TIMEOUT_S)


def test_a_silent_member_is_named_at_the_deadline(members: Members) -> None:
    members.ask({"worker 0": {"do": "add", "a": 1, "b": 1}}, TIMEOUT_S)
    with pytest.raises(BytePSError, match=r"step 'wait': no answer from worker 0 within 0\.05 s"):
        members.ask({"worker 0": {"do": "wait"}}, timeout_s=0.05)


def test_one_that_does_not_leave_is_named(members: Members) -> None:
    # Only one of the two is told to leave.
    with pytest.raises(BytePSError, match="worker 1 still runs"):
        members.leave({"worker 0": {"do": "leave"}}, timeout_s=TIMEOUT_S / 10)
