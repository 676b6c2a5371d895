"""Writes to a terminal, pipe or file without ever blocking the event loop behind a slow reader.

The descriptor is not made non-blocking: it is shared with the shell and whatever else has it open.
Instead the system is asked before every write, and no more is written than it promises to take at once.
"""

from __future__ import annotations

import os
import select

__all__ = ["Sink"]

# A pipe that is ready to be written takes this much without blocking (POSIX: at least 512, Linux: 4096).
_CHUNK_BYTES = select.PIPE_BUF
HIGH_BYTES = 1 << 18


class Sink:
    """A queue of bytes in front of a descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.hung_up = False  # the reader has gone
        self._queue = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def waiting(self) -> bool:
        """There are bytes that could not be written yet."""
        return bool(self._queue)

    @property
    def full(self) -> bool:
        """So much waits that nothing more should be read until some of it has gone."""
        return len(self._queue) > HIGH_BYTES

    def write(self, data: bytes) -> None:
        """Queue ``data`` and write what can be written now."""
        self._queue += data
        self.pump()

    def pump(self) -> None:
        """Write what can be written now."""
        while self._queue and self._poll.poll(0):
            self._write_some()

    def finish(self) -> None:
        """Write all of it, waiting for the reader as any program does."""
        while self._queue:
            self._write_some()

    def _write_some(self) -> None:
        try:
            written = os.write(self.fd, self._queue[:_CHUNK_BYTES])
        except OSError as error:  # a reader that has gone, a full disk, a closed terminal: the text is lost
            self.hung_up = isinstance(error, BrokenPipeError)
            written = len(self._queue)
        del self._queue[:written]
