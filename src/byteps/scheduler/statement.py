"""What the scheduler tells the launcher: that it is the scheduler, and who is the reason that a job ended."""

from __future__ import annotations

import os
import socket

from byteps.config import Config
from byteps.control import blame
from byteps.control.blame import Failed, Joined, Statement, Verdict, Whom
from byteps.scheduler.events import End

__all__ = ["SELF", "announce", "of", "tell"]

SELF = Whom("scheduler", 0, socket.gethostname(), os.getpid())


def announce(config: Config) -> None:
    """Once, before anybody can be told of a scheduler that was lost."""
    blame.tell(config.blame, Joined(SELF))


def tell(config: Config, end: End) -> None:
    """How a job ended."""
    statement = of(end)
    if statement is not None:
        blame.tell(config.blame, statement)


def of(end: End) -> Statement | None:
    """Pure. The scheduler is itself the reason only when a signal ended it.

    When the rank that started it gave up before the job was complete, only that rank knows why.
    """
    text = blame.brief(end.text)
    if end.lost is not None:
        lost = end.lost
        if lost.unreached_by is not None:  # neither of the two
            return Verdict(SELF, None, text)
        return Verdict(SELF, Whom(lost.role, lost.rank, lost.host, lost.pid), blame.brief(lost.reason))
    if end.error:
        return Verdict(SELF, None, text)
    return Failed(SELF, text, end.code) if end.code > 128 else None
