"""What a start-up waits for, said now and then."""

from __future__ import annotations

import time
from collections import OrderedDict

from byteps.observe.logging import logger

__all__ = ["REPEAT_S", "Progress"]

QUIET_S = 2.0  # a start-up that is faster than this says nothing
REPEAT_S = 5.0
LONGEST_REPEAT_S = 60.0
REASONS = 16


class Progress:
    """Says what a start-up waits for: not at once, when it changes, and again after 5, 10, 20... seconds.

    A wait of five minutes makes eight lines, also when it goes to and fro between a few reasons.
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self.text = ""
        self._began = time.monotonic()
        self._quiet_s = quiet_s
        self._next_at = 0.0
        self._pauses: OrderedDict[str, tuple[float, float]] = OrderedDict()  # text -> not before, then after

    def say(self, text: str) -> None:
        self.text = text
        now = time.monotonic()
        not_before, pause = self._pauses.get(text, (self._began + self._quiet_s, REPEAT_S))
        if now < max(not_before, self._next_at):
            return
        again = f" (for {now - self._began:.0f} s now)" if text in self._pauses else ""
        self._next_at = now + 1.0
        self._pauses[text] = now + pause, min(2 * pause, LONGEST_REPEAT_S)
        while len(self._pauses) > REASONS:
            self._pauses.popitem(last=False)
        logger.warning("%s%s", text, again)
