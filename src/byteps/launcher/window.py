"""What a process of a job writes to: a pipe, or a terminal of its own where the launcher has one.

Colours, bars and living displays are for terminals: programs ask whether they have one, and how wide it is.
What they draw there goes through ``output`` like all else.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios

__all__ = ["open_for"]

_ROWS = 24


def open_for(columns: int) -> tuple[int, int]:
    """The end to read and the end to write of a terminal with so many columns; 0: of a pipe."""
    if not columns:
        return os.pipe()
    try:
        read, write = os.openpty()
    except OSError:  # there are no more of them: plain output will do
        return os.pipe()
    modes = termios.tcgetattr(write)
    modes[1] &= ~termios.OPOST  # a new line stays one character
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(write, termios.TCSANOW, modes)
    fcntl.ioctl(write, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    return read, write
