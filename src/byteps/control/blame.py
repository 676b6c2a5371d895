"""Tells the launcher that this process fails because another one did, so that the cause gets the blame.

A rank that fails leaves the job before its interpreter has come to an end, and the others notice at once:
often they exit first. The launcher gives every process a pipe; who dies of the loss of a peer writes to it.
"""

from __future__ import annotations

import os
import stat

__all__ = ["another", "describe", "is_told"]

_WORD = b"another\n"


def describe(fd: int) -> str:
    """The value of BYTEPS_BLAME: a descriptor, and what tells whether it is still the same file.

    A program between the launcher and us may have closed it, and then the number is somebody else's.
    """
    return f"{fd}:{os.fstat(fd).st_ino}"


def another(value: str) -> None:
    """This process fails because of another one; ``value`` is that of BYTEPS_BLAME, nothing without it."""
    fd, _, inode = value.partition(":")
    try:
        status = os.fstat(int(fd))
        if stat.S_ISFIFO(status.st_mode) and status.st_ino == int(inode):
            os.set_blocking(int(fd), False)
            os.write(int(fd), _WORD)
    except (OSError, ValueError):  # no launcher of ours, or it has gone
        pass


def is_told(fd: int) -> bool:
    """Whether the process at the other end has said so; never blocks."""
    try:
        os.set_blocking(fd, False)
        return os.read(fd, len(_WORD)) == _WORD
    except OSError:
        return False
