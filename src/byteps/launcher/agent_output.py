"""Output of the processes of an agent, as messages to its launcher instead of lines on a screen.

The same duties as ``Display``: read what processes write, and stop reading while the launcher is slow, so
that memory stays bounded.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byteps.launcher import frames
from byteps.launcher.display import Display
from byteps.launcher.sink import Sink

__all__ = ["AgentOutput"]

_READ_BYTES = 1 << 16
_MAX_READS = 32


@dataclass(eq=False)
class _Pipe:
    process: int
    error: bool
    fd: int


class AgentOutput(Display):
    """Everything that an agent writes to its standard output."""

    def __init__(
        self, places: Sequence[int], selector: selectors.BaseSelector, on_hang_up: Callable[[], None]
    ) -> None:
        """``places``: how the launcher numbers the processes. ``on_hang_up``: nobody reads."""
        self.noted = ""  # the last line of the supervisor itself
        self._places = places
        self._selector = selector
        self._on_hang_up = on_hang_up
        self._sink = Sink(1)
        self._pipes: list[_Pipe] = []

    def open(self, process: int) -> tuple[int, int]:
        """Descriptors for a new process's standard output and error; the caller closes them."""
        return self._open(process, error=False), self._open(process, error=True)

    def _open(self, process: int, error: bool) -> int:
        read, write = os.pipe()
        os.set_blocking(read, False)
        pipe = _Pipe(process, error, read)
        self._pipes.append(pipe)
        self._selector.register(read, selectors.EVENT_READ, lambda: self._read_pipe(pipe))
        return write

    def send(self, message: frames.FromAgent) -> None:
        """Queue a message."""
        self._sink.write(frames.encode(message))
        self._balance_wire()

    def note(self, text: str) -> None:
        """Kept for whoever reports it."""
        self.noted = text

    def last_words(self, process: int, name: str) -> None:
        """The launcher has the last lines."""

    @property
    def deadline(self) -> float | None:
        """Nothing waits here: the launcher decides what is shown."""
        return None

    def drain_process(self, process: int) -> None:
        """Send all that a process has written. What its children still write comes later."""
        for pipe in [pipe for pipe in self._pipes if pipe.process == process]:
            for _ in range(_MAX_READS):  # a child that never stops writing must not hold us here
                if not self._read_pipe(pipe):
                    break

    def drain(self) -> None:
        """Send what is left in the pipes. To be called when nobody is left to write."""
        for pipe in list(self._pipes):
            while self._read_pipe(pipe):
                pass
            self._close_pipe(pipe)

    def finish(self) -> None:
        """Write all that waits, however long the launcher takes."""
        self._sink.finish()

    def _read_pipe(self, pipe: _Pipe) -> bool:
        if pipe not in self._pipes:
            return False
        try:
            data = os.read(pipe.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.send(frames.Output(self._places[pipe.process], pipe.error, data))
        else:
            self._close_pipe(pipe)
        return bool(data)

    def _close_pipe(self, pipe: _Pipe) -> None:
        if pipe not in self._pipes:
            return
        if pipe.fd in self._selector.get_map():
            self._selector.unregister(pipe.fd)
        os.close(pipe.fd)
        self._pipes.remove(pipe)

    def _balance_wire(self) -> None:
        """As ``Display`` does for a screen."""
        watched = self._selector.get_map()
        if self._sink.waiting and 1 not in watched:
            self._selector.register(1, selectors.EVENT_WRITE, self._pump_wire)
        elif not self._sink.waiting and 1 in watched:
            self._selector.unregister(1)
        for pipe in self._pipes:
            if self._sink.full and pipe.fd in watched:
                self._selector.unregister(pipe.fd)
            elif not self._sink.full and pipe.fd not in watched:
                self._selector.register(
                    pipe.fd, selectors.EVENT_READ, lambda pipe=pipe: self._read_pipe(pipe)
                )
        if self._sink.hung_up:
            self._on_hang_up()

    def _pump_wire(self) -> None:
        self._sink.pump()
        self._balance_wire()
