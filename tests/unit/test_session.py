"""A membership over planes that the test drives: memory, failure that stays, the end."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from typing import Any

import planes
import pytest

from byteps._core import FailureKind
from byteps.errors import (
    BytePSError,
    ConfigError,
    DeclarationError,
    NotInitializedError,
    OperationTimeoutError,
    OutOfMemoryError,
    PeerLostError,
    ProtocolError,
)
from byteps.worker import autopsy, failures
from byteps.worker.handle import Handle
from byteps.worker.session import Session


class Memory:
    """Something that can be watched dying."""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    core = types.ModuleType("byteps._core")
    core.OpError = planes.FakeOpError  # type: ignore[attr-defined]
    core.FailureKind = FailureKind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "byteps._core", core)
    return planes.session()


def start(session: Session, keep: object = None, name: str = "x", **more: Any) -> Handle[str]:
    tensor = session.tensor("push_pull", name, 0, (4,))
    return session.push_pull(tensor, 8, 16, True, 3, keep, "result", **more)


def handle_of(session: Session, index: int = -1) -> planes.FakeHandle:
    found = session._client.handles[index]  # type: ignore[attr-defined]
    assert isinstance(found, planes.FakeHandle)
    return found


def test_an_operation_reaches_the_core_and_its_result_comes_back(session: Session) -> None:
    handle = start(session)
    assert session._client.calls == [("push_pull", "native 0", 8, 16, 3, True)]  # type: ignore[attr-defined]
    assert not handle.done() and "in flight" in repr(handle)
    handle_of(session).complete()
    assert handle.done() and handle.wait() == handle.wait() == "result"


def test_what_is_left_to_do_is_done_once(session: Session) -> None:
    times: list[int] = []
    handle = start(session, finish=lambda: times.append(1))
    handle_of(session).complete()
    assert times == []
    handle.wait(), handle.wait()
    assert times == [1]


class TestMemory:
    def test_lives_with_the_handle_until_the_result_is_taken(self, session: Session) -> None:
        memory = Memory()
        watch = weakref.ref(memory)
        handle = start(session, memory)
        del memory
        assert watch() is not None
        handle_of(session).complete()
        handle.wait()
        assert watch() is None

    def test_outlives_a_dropped_handle_while_the_core_uses_it(self, session: Session) -> None:
        memory = Memory()
        watch = weakref.ref(memory)
        start(session, memory)  # the handle is dropped here
        del memory
        gc.collect()
        assert watch() is not None
        handle_of(session).complete()
        start(session)  # any later operation lets go of it
        assert watch() is None

    def test_of_a_dropped_finished_operation_is_free_at_once(self, session: Session) -> None:
        memory = Memory()
        watch = weakref.ref(memory)
        handle = start(session, memory)
        del memory
        handle_of(session).complete()
        del handle
        assert watch() is None

    def test_of_dropped_operations_is_free_after_the_end(self, session: Session) -> None:
        memory = Memory()
        watch = weakref.ref(memory)
        start(session, memory)
        del memory
        session.leave()
        assert watch() is None

    def test_that_another_rank_may_be_writing_to_is_never_free(self, session: Session) -> None:
        memory = Memory()
        watch = weakref.ref(memory)
        handle = start(session, memory)
        del memory, handle
        session._client.stuck = [handle_of(session)]  # type: ignore[attr-defined]
        session.leave()
        gc.collect()
        assert watch() is not None

    def test_does_not_pile_up_over_many_dropped_operations(self, session: Session) -> None:
        for _ in range(100):
            start(session, Memory())
            handle_of(session).complete()
        assert len(session._orphans) <= 1


KINDS = [
    (FailureKind.LOST, PeerLostError),
    (FailureKind.UNREACHABLE, PeerLostError),
    (FailureKind.SILENT, PeerLostError),
    (FailureKind.TIMEOUT, OperationTimeoutError),
    (FailureKind.CONFLICT, DeclarationError),
    (FailureKind.MEMORY, OutOfMemoryError),
    (FailureKind.PROTOCOL, ProtocolError),
    (FailureKind.CLOSED, NotInitializedError),
]


def test_no_kind_of_failure_is_without_an_exception() -> None:
    assert set(failures.EXCEPTIONS) == {kind.name for kind in FailureKind}
    assert {kind for kind, _ in KINDS} == set(FailureKind)


@pytest.mark.parametrize(("kind", "expected"), KINDS)
def test_every_kind_of_core_error_has_its_exception(
    session: Session, kind: FailureKind, expected: type[BytePSError]
) -> None:
    handle = start(session)
    handle_of(session).complete(planes.FakeOpError(kind, "the message", "server", 4, "host b"))
    for _ in range(2):  # each time again
        with pytest.raises(expected, match="the message") as caught:
            handle.wait()
        assert type(caught.value) is expected
    if isinstance(caught.value, PeerLostError):
        assert (caught.value.role, caught.value.rank, caught.value.host) == ("server", 4, "host b")


def test_other_errors_are_passed_on(session: Session) -> None:
    handle = start(session)
    handle_of(session).complete(MemoryError("a true one"))
    with pytest.raises(MemoryError, match="a true one"):
        handle.wait()


def test_an_error_raised_again_does_not_grow() -> None:
    error = PeerLostError("gone", "worker", 3, "b")
    copy = failures.again(error)
    assert copy is not error and copy.args == error.args and vars(copy) == vars(error)


class TestAfterALoss:
    """Whoever noticed it, every later operation raises the same error."""

    def check(self, session: Session) -> None:
        for attempt in (
            lambda: start(session, name="never declared"),
            lambda: session.barrier(),
            lambda: session.declare([]),
            lambda: session._nothing_to_move(session.tensors["x"], None),
        ):
            with pytest.raises(PeerLostError, match="worker 0 is gone") as caught:
                attempt()
            assert (caught.value.role, caught.value.rank, caught.value.host) == ("worker", 0, "a")

    def test_told_by_the_control_plane(self, session: Session) -> None:
        start(session)
        session.lost(PeerLostError("worker 0 is gone", "worker", 0, "a"))
        session.lost(
            PeerLostError("and so is the scheduler", "scheduler", 0, "c")
        )  # a consequence, not the cause
        assert session._client.failures == [(FailureKind.LOST, "worker 0 is gone", "worker", 0, "a")]  # type: ignore[attr-defined]
        self.check(session)

    def test_told_by_the_core(self, session: Session) -> None:
        handle = start(session)
        handle_of(session).complete(
            planes.FakeOpError(FailureKind.LOST, "worker 0 is gone", "worker", 0, "a")
        )
        with pytest.raises(PeerLostError):
            handle.wait()
        self.check(session)

    @pytest.mark.parametrize(("role", "looked"), [("scheduler", True), ("server", True), ("worker", False)])
    def test_who_started_what_is_gone_looks_at_it_before_its_own_end(
        self, role: str, looked: bool, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another rank noticed first and said so on the board; only a parent sees how its child fares."""
        looks: list[tuple[str, bool]] = []
        monkeypatch.setattr(autopsy, "look", lambda role, config: looks.append((role, session.has_failed)))
        for _ in range(2):
            assert isinstance(
                session.failure(planes.FakeOpError(FailureKind.LOST, "it is gone", role, 0, "a")),
                PeerLostError,
            )
        assert looks == ([(role, False)] if looked else [])  # once, and before anybody acts on the loss

    def test_what_it_leads_to_is_not_news(self, session: Session) -> None:
        handle = start(session)
        session.lost(PeerLostError("worker 0 is gone", "worker", 0, "a"))
        handle_of(session).complete(planes.FakeOpError(FailureKind.CLOSED, "shut down", "", -1, ""))
        with pytest.raises(PeerLostError, match="worker 0 is gone"):
            handle.wait()

    def test_nothing_is_lost_after_leaving(self, session: Session) -> None:
        session.leave()
        session.lost(PeerLostError("the scheduler is gone", "scheduler", 0, "a"))
        assert session._client.failures == []  # type: ignore[attr-defined]


def test_a_conflict_fails_that_tensor_only(session: Session) -> None:
    start(session)
    session.refuse("x", 0, "ranks disagree on x")
    assert session._client.failures == [(0, "ranks disagree on x", False)]  # type: ignore[attr-defined]
    start(session, name="y")


class TestZeroElements:
    def test_done_at_once(self, session: Session) -> None:
        tensor = session.tensor("push_pull", "empty", 0, (0, 3))
        assert session.push_pull(tensor, 0, 0, True, 0, None, "result").wait() == "result"
        assert session.broadcast(tensor, 0, 1, 0, None, "result").wait() == "result"
        assert session._client.calls == []  # type: ignore[attr-defined]

    def test_but_compared(self, session: Session) -> None:
        tensor = session.tensor("push_pull", "empty", 0, (0, 3))
        session.refuse("empty", tensor.tensor_id, "ranks disagree on empty")
        with pytest.raises(DeclarationError, match="ranks disagree on empty"):
            session.push_pull(tensor, 0, 0, True, 0, None, None)


@pytest.mark.parametrize("root", [-1, 2, 100, 0.5, None])
def test_a_broadcast_from_nowhere_is_refused(session: Session, root: int) -> None:
    tensor = session.tensor("broadcast", "w", 0, (4,))
    with pytest.raises(ConfigError, match=rf"broadcast of w: root_rank={root}.*expected 0 to 1"):
        session.broadcast(tensor, 8, root, 0, None, None)


@pytest.mark.parametrize("priority", [1 << 31, -(1 << 31) - 1, "high", 0.5])
def test_a_priority_the_core_cannot_take_is_named(session: Session, priority: int) -> None:
    tensor = session.tensor("push_pull", "w", 0, (4,))
    session._client.refuse_with = TypeError("incompatible function arguments")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"push_pull of w: priority=.*32 bits"):
        session.push_pull(tensor, 8, 8, True, priority, None, None)


def test_calls_without_a_name_are_refused_where_order_can_differ() -> None:
    session = planes.session({"BYTEPS_ENABLE_ASYNC": "1"})
    with pytest.raises(ConfigError, match=r"push_pull without a name.*pass name="):
        session.tensor("push_pull", None, 0, (4,))


def test_who_ends_because_of_another_says_so_when_it_leaves(session: Session) -> None:
    session.lost(PeerLostError("worker 0 is gone", "worker", 0, "a"))
    session.leave(failed=True, reason="PeerLostError: ...")
    (goodbye,) = session._control.left  # type: ignore[attr-defined]
    assert (goodbye["because"].role, goodbye["because"].rank) == ("worker", 0)


def test_who_leaves_in_peace_says_how_much_it_did(session: Session) -> None:
    start(session)
    session.leave()
    (goodbye,) = session._control.left  # type: ignore[attr-defined]
    assert goodbye["reason"] == "it left after 1 operation" and goodbye["because"] is None


def test_who_was_given_up_by_the_others_waits_for_the_words_of_the_scheduler(session: Session) -> None:
    """The board of the machine says it first, in words that are meant for others."""
    handle = start(session)
    handle_of(session).complete(
        planes.FakeOpError(FailureKind.LOST, "worker 1 (host b) was lost", "worker", 1, "b")
    )
    verdict = PeerLostError("this process was declared lost", "worker", 1, "b")
    later = threading.Timer(0.05, session.lost, (verdict,))
    later.start()
    with pytest.raises(PeerLostError, match=r"^this process was declared lost$"):
        handle.wait()
    later.join()


def test_who_was_given_up_and_hears_no_more_says_so(session: Session) -> None:
    handle = start(session)
    handle_of(session).complete(
        planes.FakeOpError(FailureKind.LOST, "worker 1 (host b) was lost", "worker", 1, "b")
    )
    with pytest.raises(PeerLostError, match=r"^this process was given up by the others: worker 1 \(host b\)"):
        handle.wait()


def test_leaving_twice_says_goodbye_once(session: Session) -> None:
    session.leave(failed=True, reason="ValueError: x")
    session.leave()
    assert session._control.left == [  # type: ignore[attr-defined]
        {"suspend": False, "failed": True, "reason": "ValueError: x", "because": None}
    ]
    assert session._client.closed  # type: ignore[attr-defined]


def test_the_speed_is_measured_only_with_telemetry() -> None:
    assert planes.session().speed_bytes_per_s() == 5e6
    assert planes.session({"BYTEPS_TELEMETRY_ON": "0"}).speed_bytes_per_s() == 0.0


def test_asynchronous_ranks_need_no_join(session: Session) -> None:
    with pytest.raises(ConfigError, match="BYTEPS_ENABLE_ASYNC=1"):
        planes.session({"BYTEPS_ENABLE_ASYNC": "1"}).expect_uneven_data(True)
    session.expect_uneven_data(True)
