"""Lines that strangers cause: some are said, none is forgotten, and nothing grows."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from byteps.observe import limited
from byteps.observe.limited import ALL, EACH, PER_SOURCE, Limited, Ration
from byteps.observe.logging import logger


def test_the_same_line_is_said_a_few_times_and_then_counted() -> None:
    ration = Ration()
    said = [ration.take("10.0.0.9", "no secret", f"refused {n}") for n in range(1_000)]
    assert said == [True] * EACH + [False] * (1_000 - EACH)
    (line,) = ration.left_out()
    assert f"left out {1_000 - EACH} more lines about 10.0.0.9" in line and line.endswith("refused 999")


def test_a_flood_of_one_kind_does_not_hide_another_kind_or_source() -> None:
    ration = Ration()
    for n in range(1_000):
        ration.take("10.0.0.9", "closed", f"{n}")
    assert ration.take("10.0.0.9", "secrets differ", "x") and ration.take("10.0.0.8", "closed", "x")


def test_one_source_with_ever_new_words_is_limited() -> None:
    ration = Ration()
    assert sum(ration.take("10.0.0.9", f"job {n}", f"{n}") for n in range(1_000)) == PER_SOURCE


def test_many_sources_are_limited_and_cost_no_memory() -> None:
    ration = Ration()
    said = sum(ration.take(f"fd00::{n:x}", "closed", f"{n}") for n in range(20_000))
    assert said == ALL and sys.getsizeof(ration._sources) < 10_000
    assert ration.left_out() == [f"left out {20_000 - ALL} more lines about others in 60 s; the last: 19999"]


class Listener(logging.Handler):
    """Keeps lines, and tells when one says what was left out."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.settled = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if self.lines[-1].startswith("left out"):
            self.settled.set()


def test_what_was_left_out_is_said_when_the_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "WINDOW_S", 0.2)

    async def scenario() -> list[str]:
        listener, lines = Listener(), Limited()
        logger.addHandler(listener)
        for _ in range(10):
            lines.warning("a", "x", "refused")
        await listener.settled.wait()
        lines.warning("a", "x", "refused")
        lines.settle()
        logger.removeHandler(listener)
        return listener.lines

    found = asyncio.run(asyncio.wait_for(scenario(), 20))
    left_out = f"left out {10 - EACH} more lines about a in 0.2 s; the last: refused"
    assert found == ["refused"] * EACH + [left_out, "refused"]
