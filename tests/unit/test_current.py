"""The one session of a process: its beginning, its ends, and the words when there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import planes
import pytest

import byteps
from byteps.control import blame
from byteps.errors import ConfigError, JoinError, NotInitializedError, PeerLostError
from byteps.worker import connect, current
from byteps.worker.interface import Place
from byteps.worker.session import Session


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that never joined anything, before and after."""
    monkeypatch.setattr(current, "session", None)
    monkeypatch.setattr(current, "_why_not", current._NEVER)
    monkeypatch.setattr(current, "_fatal", "")
    monkeypatch.setattr(current, "_launcher", "")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(current, "_watching", False)
    yield
    byteps.shutdown()


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """Every session that ``init`` makes, over planes of the test."""
    made: list[Session] = []

    def join(config: object) -> Session:
        made.append(Session(config, Place(1, 2, 0, 1), planes.FakeControl(), planes.FakeClient()))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(connect, "become_member", join)
    return made


def calls_that_need_a_job() -> dict[str, object]:
    return {
        "rank": byteps.rank,
        "size": byteps.size,
        "local_rank": byteps.local_rank,
        "local_size": byteps.local_size,
        "barrier": byteps.barrier,
        "counters": byteps.counters,
        "get_pushpull_speed": byteps.get_pushpull_speed,
        "suspend": byteps.suspend,
        "push_pull": lambda: byteps.push_pull(b"x"),
        "broadcast": lambda: byteps.broadcast(b"x", 0),
        "declare": lambda: byteps.declare("x", b"x"),
    }


@pytest.mark.parametrize("name", calls_that_need_a_job())
def test_calls_before_init_say_so(name: str) -> None:
    with pytest.raises(NotInitializedError, match=rf"^{name}: .*call byteps\.init\(\) first"):
        calls_that_need_a_job()[name]()  # type: ignore[operator]


@pytest.mark.parametrize("name", calls_that_need_a_job())
def test_calls_after_shutdown_say_so(name: str) -> None:
    byteps.init()
    byteps.shutdown()
    with pytest.raises(NotInitializedError, match=rf"^{name}: .*was shut down.*init\(\) to join again"):
        calls_that_need_a_job()[name]()  # type: ignore[operator]


def test_init_twice_joins_once(joined: list[Session]) -> None:
    byteps.init()
    byteps.init()
    assert len(joined) == 1 and byteps.is_initialized()
    assert (byteps.rank(), byteps.size(), byteps.local_rank(), byteps.local_size()) == (1, 2, 0, 1)


def test_shutdown_twice_leaves_once_and_init_joins_again(joined: list[Session]) -> None:
    byteps.shutdown()  # before init: nothing to do
    byteps.init()
    byteps.shutdown()
    byteps.shutdown()
    assert not byteps.is_initialized()
    assert len(joined[0]._control.left) == 1  # type: ignore[attr-defined]
    byteps.init()
    assert len(joined) == 2 and byteps.is_initialized()


def test_a_failed_init_can_be_tried_again(monkeypatch: pytest.MonkeyPatch, joined: list[Session]) -> None:
    def refuse(config: object) -> Session:
        raise JoinError("nobody there")

    with monkeypatch.context() as patch:
        patch.setattr(connect, "become_member", refuse)
        with pytest.raises(JoinError):
            byteps.init()
    assert not byteps.is_initialized()
    byteps.init()
    assert byteps.is_initialized()


def test_only_workers_init(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLC_ROLE", "server")
    with pytest.raises(ConfigError, match=r"DMLC_ROLE=server.*bpslaunch"):
        byteps.init()


class TestSuspend:
    def test_and_resume_as_a_job_of_another_size(self, joined: list[Session]) -> None:
        byteps.init()
        byteps.suspend()
        assert joined[0]._control.left[0]["suspend"] and not joined[0]._control.left[0]["failed"]  # type: ignore[attr-defined]
        with pytest.raises(NotInitializedError, match=r"suspended.*byteps\.resume"):
            byteps.rank()
        byteps.resume(5, 3, global_rank=4)
        config = joined[1].config
        assert (config.num_worker, config.num_server, config.global_rank, config.worker_id) == (5, 3, 4, 4)

    def test_resume_keeps_the_rank_unless_told(
        self, joined: list[Session], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DMLC_WORKER_ID", "2")
        byteps.init()
        byteps.suspend()
        byteps.resume(4, 1)
        assert joined[1].config.worker_id == 2 and joined[1].config.global_rank is None

    def test_resume_needs_a_suspended_process(self, joined: list[Session]) -> None:
        byteps.init()
        with pytest.raises(ConfigError, match="suspend"):
            byteps.resume(2, 1)


class TestAnExceptionThatEndsTheProcess:
    def test_is_told_when_leaving(self, joined: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[BaseException] = []
        monkeypatch.setattr(sys, "excepthook", lambda kind, value, trace: seen.append(value))
        byteps.init()
        error = ValueError("bad batch")
        sys.excepthook(ValueError, error, None)
        assert seen == [error]  # whoever was there before is still told
        byteps.shutdown()  # what happens at exit
        assert joined[0]._control.left == [  # type: ignore[attr-defined]
            {"suspend": False, "failed": True, "reason": "ValueError: bad batch", "because": None}
        ]

    def test_is_told_to_the_launcher_before_anybody_else_can_notice(
        self, joined: list[Session], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read, write = os.pipe()
        monkeypatch.setattr(sys, "excepthook", lambda *arguments: None)
        monkeypatch.setenv("BYTEPS_BLAME", blame.describe(write))
        byteps.init()
        sys.excepthook(ValueError, ValueError("bad batch"), None)
        assert joined[0]._control.left == []  # type: ignore[attr-defined]
        said = blame.read(os.read(read, 4096))
        assert isinstance(said, blame.Failed) and said.text == "ValueError: bad batch"
        joined[0].lost(PeerLostError("worker 0 is gone", "worker", 0))
        assert isinstance(blame.read(os.read(read, 4096)), blame.Noticed)
        sys.excepthook(RuntimeError, RuntimeError("what the loss led to"), None)
        current._forget_in_child()
        sys.excepthook(ValueError, ValueError("of a forked child"), None)
        os.close(write)
        assert os.read(read, 4096) == b""  # neither is an error of this rank
        os.close(read)

    def test_is_not_meant_at_a_prompt(self, joined: list[Session], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "excepthook", lambda *arguments: None)
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
        byteps.init()
        sys.excepthook(ValueError, ValueError("a typing error"), None)
        byteps.shutdown()
        assert not joined[0]._control.left[0]["failed"]  # type: ignore[attr-defined]


def test_a_fork_lets_go_of_the_connections(
    joined: list[Session], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    byteps.init()
    read, write = os.pipe()
    monkeypatch.setattr(joined[0]._control, "inherited_fds", lambda: [write])
    monkeypatch.setattr(current, "_abandoned", [])
    current._forget_in_child()  # what the interpreter calls in the child; here the parent plays it
    assert os.read(read, 1) == b""  # the last copy of the other end is gone
    assert os.path.samestat(os.fstat(write), Path(os.devnull).stat())  # the number is still taken
    assert joined[0]._control.left == []  # type: ignore[attr-defined]
    with pytest.raises(NotInitializedError, match="forked from rank 1"):
        byteps.rank()
    os.close(read)
    os.close(write)


def test_handles_are_checked() -> None:
    for verb in (byteps.poll, byteps.synchronize):
        with pytest.raises(TypeError, match="handle that push_pull_async"):
            verb(17)  # type: ignore[arg-type]
