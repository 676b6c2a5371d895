"""The pipes on which processes say what they know of failures (``byteps.control.blame``), as events."""

from __future__ import annotations

import os
import select
import selectors
from collections import Counter
from collections.abc import Callable

from byteps.control import blame

__all__ = ["Ear"]

_READ_BYTES = 1 << 16
# The user's own program has the pipe, too, and may write anything, for ever.
_MOST = 100  # statements of one process
_READS = 4  # at a time; a pipe holds no more, unless somebody goes on writing


class Ear:
    """Hears all processes of a supervisor."""

    def __init__(
        self, selector: selectors.BaseSelector, on_told: Callable[[int, blame.Statement], None]
    ) -> None:
        self._selector = selector
        self._on_told = on_told
        self._pipes: dict[int, int] = {}
        self._begun: dict[int, bytes] = {}  # lines without their ends
        self._counts: Counter[int] = Counter()

    def open(self, process: int) -> int:
        """A pipe for a new process; returns its writing end, which the caller closes."""
        self._pipes[process], write = os.pipe()
        os.set_blocking(self._pipes[process], False)
        self._selector.register(self._pipes[process], selectors.EVENT_READ, lambda: self._hear(process))
        return write

    def catch_up(self) -> None:
        """Hear all that was said until now: it comes before an end that is about to be told."""
        for process in list(self._pipes):
            self._hear(process)

    def _hear(self, process: int) -> None:
        """A scheduler that the process has started speaks here, too, and may live longer."""
        for _ in range(_READS):
            if process not in self._pipes:
                return
            try:
                data = os.read(self._pipes[process], _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._selector.unregister(self._pipes[process])
                os.close(self._pipes.pop(process))
                return
            *lines, begun = (self._begun.get(process, b"") + data).split(b"\n")
            self._begun[process] = begun[: select.PIPE_BUF]  # ours are shorter
            for line in lines:
                statement = blame.read(line)
                self._counts[process] += 1
                if statement is not None and self._counts[process] <= _MOST:
                    self._on_told(process, statement)
