"""Workers hear where a tensor lives when every server knows it, and not before."""

from __future__ import annotations

import pytest

from byteps.control.messages import Member
from byteps.errors import ProtocolError
from byteps.scheduler.preparations import Preparations


def servers(count: int) -> list[Member]:
    return [Member("server", r, "abc"[r % 3], "10.0.0.1", 9, 1, 0, 0, 1, 100 + r) for r in range(count)]


def test_an_answer_waits_for_all_servers() -> None:
    waiting: Preparations[str] = Preparations(servers(3))
    number = waiting.tell()
    assert waiting.answer("x") == []
    assert waiting.waiting() == ["x"]
    assert (
        waiting.missing() == "a declaration waits for server 0 (host a), server 1 (host b), server 2 (host c)"
    )
    assert waiting.confirm(2, number) == []
    assert waiting.confirm(0, number) == []
    assert waiting.missing() == "a declaration waits for server 1 (host b)"
    assert waiting.confirm(1, number) == ["x"]
    assert waiting.missing() == "" and waiting.waiting() == []


def test_what_was_confirmed_before_needs_no_more() -> None:
    waiting: Preparations[str] = Preparations(servers(1))
    waiting.confirm(0, waiting.tell())
    assert waiting.answer("the second rank declares the same") == ["the second rank declares the same"]


def test_answers_leave_in_their_order_and_no_earlier_than_what_they_need() -> None:
    waiting: Preparations[str] = Preparations(servers(2))
    first = waiting.tell()
    waiting.answer("a")
    waiting.answer("b")  # of another rank, which declared what the first one did
    second = waiting.tell()
    waiting.answer("c")
    assert waiting.confirm(0, second) == []  # and with it the first
    assert waiting.confirm(1, first) == ["a", "b"]
    assert waiting.confirm(1, second) == ["c"]


def test_a_late_word_of_an_epoch_that_is_over_confirms_nothing() -> None:
    before: Preparations[str] = Preparations(servers(1))
    old = before.tell()
    now: Preparations[str] = Preparations(servers(1), before.last)
    new = now.tell()
    now.answer("x")
    assert now.confirm(0, old) == []
    assert now.confirm(0, new) == ["x"]


def test_nobody_is_prepared_for_what_was_not_told() -> None:
    waiting: Preparations[str] = Preparations(servers(1))
    with pytest.raises(ProtocolError, match=r"server 0 .* is prepared for 1, and was told 0"):
        waiting.confirm(0, 1)
