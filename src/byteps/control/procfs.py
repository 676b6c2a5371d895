"""What the kernel says of a process."""

from __future__ import annotations

import signal
from pathlib import Path

__all__ = ["STOPPED", "ended_by", "state_and_parent", "stopped"]


STOPPED = "T"  # as SIGSTOP does it; one that a debugger holds is in another state


def state_and_parent(pid: int) -> tuple[str, int]:
    """In one letter, and a number; OSError, IndexError or ValueError for one that has ended."""
    # The name in parentheses can hold anything, also spaces and parentheses; it ends at the last one.
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[1])


def stopped(pid: int) -> bool:
    """Whether a process is stopped."""
    try:
        return state_and_parent(pid)[0] == STOPPED
    except (OSError, IndexError, ValueError):
        return False


def ended_by(number: int) -> str:
    """The name of a signal.

    >>> ended_by(9), ended_by(40)
    ('SIGKILL', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
