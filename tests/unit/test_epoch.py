"""A running epoch as a value: what members ask, what they are told, and that two can be compared."""

from __future__ import annotations

from copy import deepcopy
from logging import ERROR, INFO, WARNING

import pytest

from byteps.control.messages import (
    Barrier,
    BarrierDone,
    Conflict,
    Declare,
    Declared,
    Lacking,
    Member,
    Message,
    NamesDiffer,
    Prepare,
    Prepared,
    Refusal,
    Retire,
    TensorSpec,
    View,
    Waiting,
)
from byteps.scheduler.epoch import Effect, Epoch, Say, Tell
from byteps.scheduler.placement import Placement

FLOAT32 = 0
PATIENCE_S = 10.0


def epoch(workers: int = 2, servers: int = 2, told: int = 0) -> Epoch:
    """Without servers all ranks are on one machine."""
    places = [(rank, 0, 1) if servers else (0, rank, workers) for rank in range(workers)]
    members = [Member("worker", rank, f"host-{rank}", "::1", 9, 1, *at, 7) for rank, at in enumerate(places)]
    members += [Member("server", rank, f"host-{rank}", "::1", 9, 1, 0, 0, 1, 8) for rank in range(servers)]
    return Epoch(View(1, 0, workers, members), Placement([1] * servers), 64, told)


def declare(number: int, *tensors: str, elements: int = 4) -> Declare:
    return Declare(number, [TensorSpec(name, 0, FLOAT32, [elements]) for name in tensors])


def told(effects: list[Effect]) -> list[tuple[str, int | None, type[Message]]]:
    return [(each.role, each.rank, type(each.message)) for each in effects if isinstance(each, Tell)]


def waits(effects: list[Effect]) -> dict[int | None, str]:
    tells = [each for each in effects if isinstance(each, Tell)]
    return {each.rank: each.message.text for each in tells if isinstance(each.message, Waiting)}


def test_servers_are_told_of_a_tensor_before_its_worker_is_answered() -> None:
    running = epoch()
    effects = running.declare(0.0, 0, declare(7, "x"))
    assert told(effects) == [("server", None, Prepare)]
    assert running.prepared(0, Prepared(1, [])) == []
    (answer,) = running.prepared(1, Prepared(1, []))
    assert isinstance(answer, Tell) and (answer.role, answer.rank) == ("worker", 0)
    assert isinstance(answer.message, Declared) and answer.message.id == 7
    assert told(running.declare(0.0, 1, declare(3, "x"))) == [("worker", 1, Declared)]  # they know it


def test_ranks_that_disagree_are_all_told_and_it_is_logged_once() -> None:
    running = epoch(servers=0)
    running.declare(0.0, 0, declare(1, "x"))
    effects = running.declare(0.0, 1, declare(1, "x", elements=5))
    assert told(effects)[:2] == [("worker", 0, Conflict), ("worker", 1, Conflict)]
    (line,) = [each for each in effects if isinstance(each, Say)]
    assert line.level == ERROR and line.about == "declarations of worker 1" and "disagree" in line.text


def test_a_server_that_cannot_hold_a_tensor_refuses_it_for_all() -> None:
    running = epoch(servers=1)
    running.declare(0.0, 0, declare(7, "x"))
    line, retire, answer = running.prepared(0, Prepared(1, [Refusal(0, "no memory", lack=True)]))
    assert line == Say(
        ERROR,
        "tensor 'x', float32 [4]: server 0 (host host-0) cannot hold it: no memory",
        "refusals of server 0",
    )
    assert retire == Tell("server", Retire([0]))
    assert isinstance(answer, Tell) and isinstance(answer.message, Declared)
    assert answer.message.tensors[0].lack and answer.message.tensors[0].error == line.text


def test_a_worker_without_memory_is_told_of_to_all_who_have_declared_it() -> None:
    running = epoch(servers=0)
    for rank in (0, 1):
        running.declare(0.0, rank, declare(1, "x"))
    effects = running.lacking(1, Lacking(0, "no memory"))
    assert told(effects) == [("worker", 0, Conflict), ("worker", 1, Conflict)]
    assert running.lacking(1, Lacking(0, "no memory")) == []


def test_a_barrier_opens_for_all_and_names_who_never_comes() -> None:
    running = epoch(workers=3, servers=0)
    assert running.barrier(2, Barrier(5)) == []
    assert running.barrier(0, Barrier(6)) == []
    opened = running.barrier(1, Barrier(9))
    assert opened == [Tell("worker", BarrierDone(n), rank) for rank, n in ((0, 6), (1, 9), (2, 5))]
    running.barrier(0, Barrier(7))
    (left,) = running.depart(2)
    assert left == Tell("worker", BarrierDone(7, running.view.workers()[2]), 0)


def test_who_waits_for_long_is_told_for_whom() -> None:
    running = epoch()
    assert running.due_at(0.0) is None  # nobody waits
    running.barrier(0, Barrier(1))
    running.declare(0.0, 1, declare(1, "x"))
    assert running.due_at(0.0) == 1.0
    assert waits(running.look(PATIENCE_S - 1, PATIENCE_S)) == {}
    text = waits(running.look(PATIENCE_S, PATIENCE_S))
    assert text[0] == "barrier waits for worker 1 (host host-1)"
    assert text[1].startswith("a declaration waits for server 0")
    assert waits(running.look(PATIENCE_S + 1, PATIENCE_S)) == {}  # said again only after as long again


@pytest.mark.parametrize(("crossed", "level"), [(False, INFO), (True, WARNING)])
def test_names_that_only_some_have_are_told_and_taken_back(crossed: bool, level: int) -> None:
    running = epoch(servers=0)
    running.declare(0.0, 0, declare(1, "a.weight"))
    if crossed:
        running.declare(0.0, 1, declare(1, "b.weight"))
    due = running.due_at(0.0)
    assert due is not None
    line, news = running.look(due, PATIENCE_S)
    assert isinstance(line, Say) and line.level == level and "a.weight" in line.text
    assert news == Tell("worker", NamesDiffer(line.text, crossed))
    if not crossed:
        effects = running.declare(due, 1, declare(1, "a.weight"))
        assert effects[-1] == Tell("worker", NamesDiffer("", False))
        assert running.due_at(due) is None


def test_it_is_a_value() -> None:
    one, other = epoch(), epoch()
    assert one == other
    one.declare(0.0, 0, declare(1, "x"))
    assert one != other
    copy = deepcopy(one)
    assert copy == one and repr(copy) == repr(one) and "'x'" in repr(one)
    copy.barrier(0, Barrier(1))
    assert copy != one
    other.declare(0.0, 0, declare(1, "x"))
    assert one == other
    assert epoch(told=4).preparations.tell() == 5  # numbers go on from the epoch before
