"""How far the clock of this process is from that of the scheduler's machine. Pure.

Processes of one machine have one clock (CLOCK_MONOTONIC counts from its boot), and there is nothing to find
out. Between machines a member asks the scheduler for its time now and then: the answer was made somewhere
between question and answer, so their middle is wrong by at most half of the round trip. The best of the last
answers counts: the shortest round trip, but none that is so old that the clocks may have drifted apart.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["Clock", "Offset"]

_KEPT = 32  # answers; at one per second clocks drift by less than 2 us meanwhile


@dataclass(frozen=True)
class Offset:
    """To be added to a time of this process; then it is one of the scheduler's machine."""

    ns: int
    error_ns: int


class Clock:
    """What the answers of the scheduler say.

    >>> clock = Clock("boot a")
    >>> clock.hear(1_000, 5_100, 1_200, "boot b")
    >>> clock.hear(2_000, 9_000, 4_000, "boot b")  # a longer way: it says less
    >>> clock.offset
    Offset(ns=4000, error_ns=100)
    """

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._heard: deque[tuple[int, int]] = deque(maxlen=_KEPT)  # round trip, offset

    def hear(self, asked_ns: int, told_ns: int, now_ns: int, kernel: str) -> None:
        """An answer: when it was asked for, the scheduler's time, and when it came."""
        if kernel and kernel == self._kernel:
            self._heard.append((0, 0))
        elif now_ns >= asked_ns:
            self._heard.append((now_ns - asked_ns, told_ns - (asked_ns + now_ns) // 2))

    @property
    def offset(self) -> Offset | None:
        """The best there is; None before the first answer."""
        if not self._heard:
            return None
        trip, offset = min(self._heard)
        return Offset(offset, trip // 2)
