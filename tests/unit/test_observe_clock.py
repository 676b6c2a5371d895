"""How far the clock of a member is from the scheduler's."""

from __future__ import annotations

from byteps.control.clock import Clock, Offset


def test_one_machine_has_one_clock() -> None:
    clock = Clock("boot a")
    assert clock.offset is None
    clock.hear(100, 7_000, 300, "boot a")
    assert clock.offset == Offset(0, 0)


def test_the_shortest_round_trip_counts() -> None:
    clock = Clock("boot a")
    for trip, offset in ((5_000, 900), (200, 1_000), (7_000, 3_000)):
        clock.hear(10_000, 10_000 + trip // 2 + offset, 10_000 + trip, "boot b")
    assert clock.offset == Offset(1_000, 100)


def test_old_answers_are_forgotten() -> None:
    clock = Clock("boot a")
    clock.hear(0, 500, 2, "boot b")
    for _ in range(32):
        clock.hear(0, 1_000, 20, "boot b")
    assert clock.offset == Offset(990, 10)


def test_an_answer_from_before_the_question_says_nothing() -> None:
    clock = Clock("")
    clock.hear(500, 100, 400, "")
    assert clock.offset is None
