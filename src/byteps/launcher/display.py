"""Pipes from the processes of a job to the launcher's own output, as events of a selector.

How output looks is decided in ``output``. This part moves bytes: it reads what processes write, and stops
reading for a destination whose reader is slow, so that memory stays bounded and the processes wait as they
would alone.
"""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from byteps.launcher.log_files import LogFiles
from byteps.launcher.output import TAIL_LINES, Screen, Style
from byteps.launcher.sink import Sink

__all__ = ["Display"]

_READ_BYTES = 1 << 16


@dataclass(eq=False)
class _Destination:
    screen: Screen
    sink: Sink


@dataclass(eq=False)
class _Channel:
    """One pipe from a process to a destination."""

    process: int
    fd: int
    to: _Destination


class Display:
    """Standard output and error of a job."""

    def __init__(
        self,
        names: Sequence[str],
        order: Sequence[int],
        environ: Mapping[str, str],
        selector: selectors.BaseSelector,
        on_hang_up: Callable[[], None],
        logs: LogFiles | None = None,
    ) -> None:
        """``order`` as in ``Screen``; ``on_hang_up`` is called when nobody reads standard output."""
        self._logs = logs
        self._selector = selector
        self._on_hang_up = on_hang_up
        self._channels: list[_Channel] = []
        self._tails: list[deque[bytes]] = [deque(maxlen=TAIL_LINES) for _ in names]
        # One pipe for both when both are the same, so that what a process writes keeps its order.
        fds = [2] if _same_file(1, 2) else [1, 2]
        self._to = [
            _Destination(Screen(names, order, self._tails, _style(fd, environ)), Sink(fd)) for fd in fds
        ]

    def open(self, process: int) -> tuple[int, int]:
        """Descriptors for a new process's standard output and error; the caller closes them."""
        fds = [self._pipe(process, to) for to in self._to]
        return fds[0], os.dup(fds[0]) if len(fds) == 1 else fds[1]

    @property
    def full(self) -> bool:
        """So much waits to be written that nothing more should be fed."""
        return any(to.sink.full for to in self._to)

    def feed(self, process: int, error: bool, data: bytes) -> None:
        """What a process elsewhere has written to its standard output or error."""
        if self._logs is not None:
            self._logs.write(process, data)
        to = self._to[-1 if error else 0]
        self._write(to, to.screen.feed(process, data))

    def note(self, text: str) -> None:
        """A line of the launcher itself."""
        self._write(self._to[-1], self._to[-1].screen.note(f"bpslaunch: {text}"))

    def repeat(self, process: int, name: str) -> None:
        """The last lines of a process once more, if its output went through here."""
        if count := len(self._tails[process]):
            self.note(f"the last {count} lines of {name}:" if count > 1 else f"the last line of {name}:")
            self._write(self._to[-1], self._to[-1].screen.tail(process))

    def drain(self) -> None:
        """Read what is left in the pipes. To be called when nobody is left to write."""
        for channel in list(self._channels):
            while self._read(channel):
                pass
            if channel in self._channels:
                self._close(channel)

    def close(self, process: int) -> None:
        """A process elsewhere will write no more: show its last line, if it was not ended."""
        for to in self._to:
            self._write(to, to.screen.close(process))

    def finish(self) -> None:
        """Write all that waits, however long the reader takes."""
        for to in self._to:
            to.sink.finish()

    def _pipe(self, process: int, to: _Destination) -> int:
        """A new pipe whose reading end is watched; returns the writing end."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        channel = _Channel(process, read, to)
        self._channels.append(channel)
        self._listen(channel)
        return write

    def _listen(self, channel: _Channel) -> None:
        self._selector.register(channel.fd, selectors.EVENT_READ, lambda: self._read(channel))

    def _read(self, channel: _Channel) -> bool:
        """Pass on what a process has written; False when there is nothing more now."""
        try:
            data = os.read(channel.fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            if self._logs is not None:
                self._logs.write(channel.process, data)
            self._write(channel.to, channel.to.screen.feed(channel.process, data))
            return True
        self._close(channel)
        return False

    def _close(self, channel: _Channel) -> None:
        if channel.fd in self._selector.get_map():
            self._selector.unregister(channel.fd)
        os.close(channel.fd)
        self._channels.remove(channel)
        self._write(channel.to, channel.to.screen.close(channel.process))

    def _write(self, to: _Destination, data: bytes) -> None:
        to.sink.write(data)
        self._balance(to)

    def _pump(self, to: _Destination) -> None:
        to.sink.pump()
        self._balance(to)

    def _balance(self, to: _Destination) -> None:
        """Look for room while something waits; read nothing more for a destination that is full."""
        sink = to.sink
        watched = self._selector.get_map()
        if sink.waiting and sink.fd not in watched:
            self._selector.register(sink.fd, selectors.EVENT_WRITE, lambda: self._pump(to))
        elif not sink.waiting and sink.fd in watched:
            self._selector.unregister(sink.fd)
        for channel in self._channels:
            if channel.to is to and sink.full and channel.fd in watched:
                self._selector.unregister(channel.fd)
            elif channel.to is to and not sink.full and channel.fd not in watched:
                self._listen(channel)
        if sink.hung_up and to is self._to[0]:
            self._on_hang_up()


def _same_file(a: int, b: int) -> bool:
    try:
        return os.path.sameopenfile(a, b)
    except OSError:
        return False


def _style(fd: int, environ: Mapping[str, str]) -> Style:
    if not os.isatty(fd) or environ.get("TERM", "dumb") == "dumb":
        return Style()
    return Style(colour=not environ.get("NO_COLOR"), columns=lambda: os.get_terminal_size(fd).columns or 80)
