"""The exception for a member that is gone, alike in workers and servers; and for oneself, when one is."""

from __future__ import annotations

import time

from byteps.control.blame import Whom
from byteps.control.messages import Lost, Member
from byteps.control.sentences import cut, has_left, was_lost
from byteps.errors import PeerLostError

__all__ = ["ended", "left", "loss", "told"]


def loss(whom: Whom, reason: str) -> PeerLostError:
    """A member is gone.

    >>> str(loss(Whom("server", 1, "b", 7), "its connection closed"))
    'server 1 (host b, pid 7) was lost: its connection closed; this job cannot go on, start it again'
    """
    text = f"{was_lost(whom, reason)}; this job cannot go on, start it again"
    return PeerLostError(text, whom.role, whom.rank, whom.host, pid=whom.pid, reason=reason)


def ended(host: str, reason: str) -> PeerLostError:
    """The scheduler has ended the job for a reason that is nobody's loss."""
    text = f"the {Whom('scheduler', 0, host)} has ended this job: {reason}"
    return PeerLostError(text, "scheduler", 0, host, reason=reason)


def left(gone: Member, operation: str, advice: str) -> PeerLostError:
    """An operation needs a member that has said goodbye."""
    text = f"{operation}: {has_left(gone)} and will not come; {advice}"
    return PeerLostError(text, gone.role, gone.rank, gone.host)


def told(message: Lost, role: str, rank: int) -> PeerLostError:
    """The scheduler says that a member is lost, to the member ``role`` ``rank``. It may be this one itself.

    That one was stopped, or its network was away: it finds the message when it wakes up. Its connections
    have been closed in the meantime, and yet the scheduler is not what was lost.
    """
    whom = Whom(message.role, message.rank, message.host, message.pid)
    if message.unreached_by is not None:
        return _cut(message.unreached_by, whom, message.reason, (role, rank))
    if (message.role, message.rank) != (role, rank):
        return loss(whom, message.reason)
    at = time.strftime(" at %H:%M:%S", time.localtime(message.at_s)) if message.at_s else ""
    text = f"this process, {whom}, was declared lost by the scheduler{at}: {message.reason}"
    text = f"{text}; the job has ended without it, start it again"
    return PeerLostError(text, role, rank, whom.host, pid=whom.pid, reason=message.reason)


def _cut(one: Whom, other: Whom, reason: str, reader: tuple[str, int]) -> PeerLostError:
    """To ``reader``, which may be one of them, the other one is what was lost."""
    lost = one if (other.role, other.rank) == reader else other
    sentence = cut(one, other, reason)
    text = f"{sentence}; this job cannot go on, start it again"
    return PeerLostError(text, lost.role, lost.rank, lost.host, pid=lost.pid, reason=sentence)
