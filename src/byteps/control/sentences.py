"""The words that tell of a member, and of one that is gone: the same from everybody who tells of it."""

from __future__ import annotations

__all__ = ["cut", "has_left", "lost", "member", "was_lost"]


def member(role: str, rank: int, host: str = "", pid: int = 0) -> str:
    """A member as people should read it.

    >>> member("worker", 3, "b"), member("server", 1, "b", 7), member("scheduler", 0)
    ('worker 3 (host b)', 'server 1 (host b, pid 7)', 'scheduler')
    """
    name = role if role == "scheduler" else f"{role} {rank}"
    where = [f"host {host}"] if host else []
    where += [f"pid {pid}"] if pid else []
    return f"{name} ({', '.join(where)})" if where else name


def was_lost(who: object, reason: str = "") -> str:
    """It died, or went silent.

    >>> was_lost("worker 3 (host b)", "its connection closed")
    'worker 3 (host b) was lost: its connection closed'
    """
    return f"{who} {lost(reason)}"


def lost(reason: str = "") -> str:
    """The same where the name stands apart."""
    return f"was lost: {reason}" if reason else "was lost"


def has_left(who: object) -> str:
    """It said goodbye while others still needed it."""
    return f"{who} has left the job"


def cut(one: object, other: object, reason: str) -> str:
    """Two members are well, and there is no way between them.

    >>> cut("worker 0 (host a)", "server 1 (host b)", "nothing came through for 12.5 s")
    'worker 0 (host a) and server 1 (host b) cannot reach each other: nothing came through for 12.5 s'
    """
    return f"{one} and {other} cannot reach each other: {reason}"
