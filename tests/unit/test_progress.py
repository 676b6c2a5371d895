"""How often a start-up says what it waits for: soon, when it changes, and then seldom."""

from __future__ import annotations

import logging

import pytest

from byteps.control import progress as module


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def said_in(
    seconds: float,
    texts: list[str],
    monkeypatch: pytest.MonkeyPatch,
    level: str = "warning",
    limit_s: float = 300.0,
) -> list[tuple[float, str]]:
    """What is logged when each of ``texts`` in turn is said ten times in every second."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    lines: list[tuple[float, str]] = []
    monkeypatch.setattr(
        logging.Logger, level, lambda self, form, *words: lines.append((clock.now - 100, form % words))
    )
    progress = module.Progress(limit_s)
    for turn in range(int(10 * seconds)):
        clock.now = 100.0 + turn / 10
        progress.say(texts[turn % len(texts)])
        assert progress.text == texts[turn % len(texts)]
    return lines


def test_one_reason_is_repeated_after_longer_and_longer_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said_in(300, ["nobody there"], monkeypatch)
    assert [round(at) for at, _ in lines] == [10, 15, 25, 45, 85, 145, 205, 265]
    assert lines[0][1] == "nobody there" and lines[2][1] == "nobody there (for 25 s now)"


def test_reasons_that_go_to_and_fro_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said_in(300, ["refused", "reset", "no route"], monkeypatch)
    assert len(lines) <= 3 * 8
    assert {text.split(" (")[0] for _, text in lines[:3]} == {"refused", "reset", "no route"}


def test_a_fast_start_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_in(1.9, ["nobody there"], monkeypatch) == []
    assert said_in(1.9, ["nobody there"], monkeypatch, "info") == []


def test_a_start_that_is_not_late_is_nothing_to_warn_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_in(9.9, ["nobody there"], monkeypatch) == []
    lines = said_in(300, ["nobody there"], monkeypatch, "info")
    assert [round(at) for at, _ in lines] == [2, 7] and lines[0][1] == "nobody there"


def test_on_a_terminal_it_is_one_line_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(module, "living", lambda text: shown.append(text) or True)
    assert said_in(12, ["nobody there"], monkeypatch) == []
    assert len(shown) == 20 and shown[-1] == "nobody there (for 12 s now)"


def test_who_waits_for_a_few_seconds_only_is_warned_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = said_in(6, ["nobody there"], monkeypatch, limit_s=6)
    assert [round(at) for at, _ in lines] == [2]
