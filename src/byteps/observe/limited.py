"""Log lines that others can cause as often as they like: the first are said, the rest is counted.

Theory. In one minute a source (an address, a rank) gets the same kind of line ``EACH`` times, and in all
``PER_SOURCE`` lines, so that a probe which comes every second hides neither itself nor the one line that
matters. All sources together get ``ALL`` lines, and only as many sources are remembered, so that neither the
log nor our memory grows with their number. When the minute is over, a line for every source says what was
left out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from byteps.observe.logging import logger

__all__ = ["ALL", "EACH", "PER_SOURCE", "WINDOW_S", "Limited", "Ration"]

WINDOW_S = 60.0
EACH, PER_SOURCE, ALL = 3, 10, 50


@dataclass
class _Source:
    said: Counter[str] = field(default_factory=Counter)  # lines by kind
    left_out: int = 0
    last: str = ""


class Ration:
    """Which lines of one window may be said. No I/O and no clock."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._others = _Source()  # all that came when there was no room for one more
        self._said = 0

    def take(self, source: str, kind: str, text: str) -> bool:
        """Whether this line may be said; if not, it is counted."""
        known = self._sources.get(source)
        if known is None:
            known = self._others
            if len(self._sources) < ALL:
                known = self._sources[source] = _Source()
        few = known is not self._others and known.said[kind] < EACH and known.said.total() < PER_SOURCE
        if few and self._said < ALL:
            known.said[kind] += 1
            self._said += 1
            return True
        known.left_out += 1
        known.last = text
        return False

    def left_out(self) -> list[str]:
        """A line for every source that had more to say."""
        rows = [*self._sources.items(), ("others", self._others)]
        return [
            f"left out {each.left_out} more lines about {source} in {WINDOW_S:g} s; the last: {each.last}"
            for source, each in rows
            if each.left_out
        ]


class Limited:
    """A ration that is renewed every ``WINDOW_S``. Lives in one asyncio loop."""

    def __init__(self) -> None:
        self._ration = Ration()
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def warning(self, source: str, kind: str, text: str) -> None:
        """Log ``text`` unless there were too many. ``kind`` is what makes it the same line as another."""
        self.log(logging.WARNING, source, kind, text)

    def log(self, level: int, source: str, kind: str, text: str) -> None:
        """The same, with a level."""
        now = time.monotonic()
        if now - self._since >= WINDOW_S:
            self.settle()
            self._since = now
        if self._ration.take(source, kind, text):
            logger.log(level, "%s", text)
        elif self._timer is None:
            left = self._since + WINDOW_S - now
            self._timer = asyncio.get_running_loop().call_later(left, self.settle)

    def settle(self) -> None:
        """Say what was left out, and begin anew. Also to be called at the end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for line in self._ration.left_out():
            logger.warning("%s", line)
        self._ration = Ration()
        self._since = 0.0
