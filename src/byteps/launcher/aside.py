"""Lines that wait until it is known whether anybody wants to read them. Pure.

When one process of a job fails, the others fail because of it, each with a traceback of its own: of those,
only that of the culprit is worth a look. A process prints its traceback and ends a moment later, so from its
first line on the lines of that process wait: at the end of the job those of the culprit are shown, once,
above the sentence that names it, and what the others said of it stays in the log files. A process that goes
on after a traceback had only logged one: its lines are shown when ``WAIT_S`` are over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["WAIT_S", "Aside", "only_interrupted"]

WAIT_S = 2.0  # a process that ends after a traceback has done so within this
MAX_BYTES = 1 << 18  # somebody writes a lot instead of ending

# A traceback, or an error of Python that comes without one; how a program refuses its arguments; what a
# service of ours says before it ends; what a member logs of a loss.
_BEGINS = re.compile(
    rb"(\x1b\[[0-9;]*m)*(Traceback \(most recent call last\):|Exception in thread |Fatal Python error: "
    rb'|  File "[^"]*", line \d+$|\S*python[0-9.]*: can.t open file |usage: '
    rb"|byteps (scheduler|server): \w+Error: |(\S+ \S+ )?ERROR (worker|server|scheduler)\b"
    rb"|(\S+ \S+ )?WARNING [^:]*: the last seconds of this process are in )"
)
_EXCEPTION = re.compile(rb"[A-Za-z_][\w.]*(:|$)|byteps (scheduler|server): ")  # the last line of a traceback
_INTERRUPTED = re.compile(rb"KeyboardInterrupt\b|byteps\.errors\.|byteps (scheduler|server): |SystemExit\b")


class Aside:
    """What one process has written since the first line of a traceback."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.since = 0.0  # when the first of them came
        self._bytes = 0

    def take(self, lines: Sequence[bytes], now: float) -> list[bytes]:
        """Those of ``lines`` to show now; the others wait here."""
        for place, line in enumerate(lines):
            if self.lines or _BEGINS.match(line):
                return [*lines[:place], *self._keep(lines[place:], now)]
        return list(lines)

    def give(self) -> list[bytes]:
        """All that waits, which then waits no more."""
        waited, self.lines, self._bytes = self.lines, [], 0
        return waited

    def _keep(self, lines: Sequence[bytes], now: float) -> list[bytes]:
        if not self.lines:
            self.since = now
        self.lines += lines
        self._bytes += sum(map(len, lines))
        return self.give() if self._bytes > MAX_BYTES else []


def only_interrupted(lines: Sequence[bytes]) -> bool:
    """Whether these lines tell of nothing but that somebody pressed Ctrl-C.

    >>> only_interrupted([b"Traceback (most recent call last):", b"  ...", b"KeyboardInterrupt"])
    True
    """
    ends = [line for line in lines if _EXCEPTION.match(line)]
    return not ends or _INTERRUPTED.match(ends[-1]) is not None
