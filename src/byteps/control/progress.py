"""What a start-up waits for, said now and then."""

from __future__ import annotations

import time
from collections import OrderedDict

from byteps.observe.logging import living, logger

__all__ = ["REPEAT_S", "Progress"]

QUIET_S = 2.0  # a start-up that is faster than this says nothing
LATE_S = 10.0  # until then the others may still load their frameworks: no reason to warn
REPEAT_S = 5.0
LONGEST_REPEAT_S = 60.0
REASONS = 16


class Progress:
    """Says what a start-up waits for: not at once, when it changes, and again after 5, 10, 20... seconds.

    A healthy one is nothing to warn of: it is INFO at first, and a WARNING from when it is late. A wait of
    five minutes makes eight warnings, also when it goes to and fro between a few reasons. On a terminal it is
    one line instead, that counts the seconds.
    """

    def __init__(self, limit_s: float, quiet_s: float = QUIET_S) -> None:
        """``limit_s``: after this long the start-up fails; a third of it is late. 0: it is none."""
        self.text = ""
        self._began = time.monotonic()
        self._limit_s = limit_s
        self._quiet_s = quiet_s
        self._next_at = 0.0
        self._late = False
        self._late_at = self._began + min(LATE_S, limit_s / 3)
        self._pauses: OrderedDict[str, tuple[float, float]] = OrderedDict()  # text -> not before, then after

    def say(self, text: str) -> None:
        self.text = text
        now = time.monotonic()
        if not self._late and now >= self._late_at:
            self._late = True
            self._next_at = now
            self._pauses.clear()
        if self._late and self._limit_s and living(f"{text} (for {now - self._began:.0f} s now)"):
            return
        not_before, pause = self._pauses.get(text, (self._began + self._quiet_s, REPEAT_S))
        if now < max(not_before, self._next_at):
            return
        again = f" (for {now - self._began:.0f} s now)" if text in self._pauses else ""
        self._next_at = now + 1.0
        self._pauses[text] = now + pause, min(2 * pause, LONGEST_REPEAT_S)
        while len(self._pauses) > REASONS:
            self._pauses.popitem(last=False)
        (logger.warning if self._late else logger.info)("%s%s", text, again)

    def close(self) -> None:
        """The wait is over."""
        living("")
