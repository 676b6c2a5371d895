"""Pipes from the processes of a job to the launcher's own output, as events of a selector.

How output looks is decided in ``output``. This part moves bytes: it reads what processes write, and stops
reading for a destination whose reader is slow, so that memory stays bounded and the processes wait as they
would alone.
"""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from byteps.launcher.aside import WAIT_S, only_interrupted
from byteps.launcher.log_files import LogFiles
from byteps.launcher.output import TAIL_LINES, Screen, Style
from byteps.launcher.sink import Sink
from byteps.launcher.window import open_for

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
        *,
        all_at_once: bool = False,
    ) -> None:
        """``order`` as in ``Screen``; ``on_hang_up`` is called when nobody reads standard output.

        ``all_at_once``: tracebacks do not wait until it is known whose are worth a look.
        """
        self._logs = logs
        self._selector = selector
        self._on_hang_up = on_hang_up
        self._channels: list[_Channel] = []
        self._tails: list[deque[bytes]] = [deque(maxlen=TAIL_LINES) for _ in names]
        # One pipe for both when both are the same, so that what a process writes keeps its order.
        fds = [2] if _same_file(1, 2) else [1, 2]
        self._to = [
            _Destination(Screen(names, order, self._tails, _style(fd, environ, all_at_once)), Sink(fd))
            for fd in fds
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
        self._write(to, to.screen.feed(process, data, time.monotonic()))

    def note(self, text: str) -> None:
        """A line of the launcher itself."""
        self._write(self._to[-1], self._to[-1].screen.note(f"bpslaunch: {text}"))

    def last_words(self, process: int, name: str) -> None:
        """The last lines of a process, if its output went through here and they are not in view already."""
        if process in self._asides():
            self._release({process})
        elif (count := len(self._tails[process])) and not self._to[-1].screen.in_view(process):
            self.note(f"the last {count} lines of {name}:" if count > 1 else f"the last line of {name}:")
            self._write(self._to[-1], self._to[-1].screen.tail(process))

    # ---- lines that wait: ``aside``

    @property
    def deadline(self) -> float | None:
        """When lines that wait have waited long enough, unless the job is ending."""
        known = [since for to in self._to if (since := to.screen.waiting_since()) is not None]
        return min(known) + WAIT_S if known else None

    def tick(self) -> None:
        """Show what has waited for long enough: nothing failed, and somebody only logged a traceback."""
        deadline = self.deadline
        if deadline is not None and time.monotonic() >= deadline:
            self._release(self._asides())

    def interrupted(self) -> None:
        """The job was ended by a signal: show what waits, but for those who were only interrupted by it."""
        asides = self._asides()
        self._release({process for process, lines in asides.items() if not only_interrupted(lines)})

    def release(self) -> None:
        """Show all that waits."""
        self._release(self._asides())

    def unsaid(self) -> int:
        """How many processes have said something that still waits."""
        return len(self._asides())

    def _asides(self) -> dict[int, list[bytes]]:
        return {process: lines for to in self._to for process, lines in to.screen.waiting.items()}

    def _release(self, processes: Collection[int]) -> None:
        for to in self._to:
            for process in sorted(processes):
                self._write(to, to.screen.release(process))

    # ---- the end

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
            self._write(to, to.screen.close(process, time.monotonic()))

    def finish(self) -> None:
        """Write all that waits, however long the reader takes."""
        for to in self._to:
            to.sink.finish()

    def _pipe(self, process: int, to: _Destination) -> int:
        """A new pipe whose reading end is watched; returns the writing end."""
        read, write = open_for(to.screen.columns(process))
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
        except OSError:  # how a terminal says that nobody has it any more
            data = b""
        if data:
            if self._logs is not None:
                self._logs.write(channel.process, data)
            self._write(channel.to, channel.to.screen.feed(channel.process, data, time.monotonic()))
            return True
        self._close(channel)
        return False

    def _close(self, channel: _Channel) -> None:
        if channel.fd in self._selector.get_map():
            self._selector.unregister(channel.fd)
        os.close(channel.fd)
        self._channels.remove(channel)
        self._write(channel.to, channel.to.screen.close(channel.process, time.monotonic()))

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


def _style(fd: int, environ: Mapping[str, str], all_at_once: bool) -> Style:
    if not os.isatty(fd) or environ.get("TERM", "dumb") == "dumb":
        return Style(all_at_once=all_at_once)
    return Style(
        colour=not environ.get("NO_COLOR"),
        columns=lambda: os.get_terminal_size(fd).columns or 80,
        all_at_once=all_at_once,
    )
