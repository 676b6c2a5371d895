"""What a launcher learns of processes, which are numbered in the order of their plan. Data only."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from byteps.control.blame import Statement

__all__ = ["Ended", "Fact", "Halted", "NotStarted", "Told", "how"]


@dataclass(frozen=True)
class Ended:
    """A process ended; ``code`` as a shell counts it: 128+n for signal n."""

    process: int
    code: int


@dataclass(frozen=True)
class NotStarted:
    """A process could not be started, so the job cannot be."""

    process: int
    code: int


@dataclass(frozen=True)
class Told:
    """A process said something. ``own`` False: it was a scheduler or server that this process had started."""

    process: int
    statement: Statement
    own: bool = True


@dataclass(frozen=True)
class Halted:
    """A process was found stopped, as SIGSTOP does it, when it should have ended."""

    process: int
    pid: int


Fact = Ended | NotStarted | Told | Halted


def how(code: int) -> str:
    """How a process with this code ended, in words.

    >>> how(3), how(137)
    ('exited with code 3', 'was ended by SIGKILL (code 137)')
    """
    try:
        return f"was ended by {signal.Signals(code - 128).name} (code {code})"
    except ValueError:
        return f"exited with code {code}"
