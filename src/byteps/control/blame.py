"""What a process tells its launcher of failures: its own, and those that it noticed.

A rank that fails leaves the job before its interpreter has come to an end, and the others notice at once:
often they exit first, so who exits first says nothing. The launcher gives every process a pipe, and whoever
knows something says it there *before* it acts on it. So what is in the pipes when a process has ended came
before everything that its end led to, and ``byteps.launcher.culprit`` can judge by the order.

Exit codes could not say it: they are the user's, and come last. The scheduler could not pass it on: it may be
the one that is gone. One statement is one line of JSON, short enough to be written in one piece: rank 0 of a
job on one machine shares its pipe with the scheduler and the server that it starts.
"""

from __future__ import annotations

import os
import select
import stat
from typing import Union

import msgspec

from byteps.control.said import Said, Text
from byteps.control.sentences import member
from byteps.errors import JoinTimeoutError, OperationTimeoutError, PeerLostError
from byteps.observe.text import clean

__all__ = ["Failed", "Joined", "Noticed", "Statement", "Verdict", "Whom", "describe", "descriptor", "read"]
__all__ += ["tell", "words"]

MAX_TEXT = 600  # characters; with all else in a line still below PIPE_BUF, 4096 bytes


class Whom(Said, frozen=True):
    """A member of a job. ``rank`` of the scheduler is 0; ``pid`` 0: unknown."""

    role: Text
    rank: int
    host: Text = ""
    pid: int = 0

    def __str__(self) -> str:
        return member(self.role, self.rank, self.host, self.pid)


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """The speaker is this member. The scheduler numbers members, so the launcher cannot know before."""

    who: Whom


class Failed(Said, frozen=True, tag="failed"):
    """The speaker ends because of an error of its own; ``code``: the exit code that it will have."""

    who: Whom
    text: Text
    code: int = 1


class Noticed(Said, frozen=True, tag="noticed"):
    """The speaker cannot go on without another one; ``about`` None: nobody can say which."""

    who: Whom
    about: Whom | None
    text: Text


class Verdict(Said, frozen=True, tag="verdict"):
    """Who is the reason, said by one that is sure: the scheduler, or a rank of a process that it started.

    ``code``: how that process ended, as a shell counts it; 0 if the speaker cannot tell.
    """

    who: Whom
    about: Whom | None
    text: Text
    code: int = 0


Statement = Union[Joined, Failed, Noticed, Verdict]  # noqa: UP007  msgspec reads the tags out of it

_decoder: msgspec.json.Decoder[Statement] = msgspec.json.Decoder(Statement)


def describe(fd: int) -> str:
    """The value of BYTEPS_BLAME: a descriptor, and what tells whether it is still the same file.

    A program between the launcher and us may have closed it, and then the number is somebody else's.
    """
    return f"{fd}:{os.fstat(fd).st_ino}"


def descriptor(value: str) -> int | None:
    """The pipe that BYTEPS_BLAME names, if it is there."""
    fd, _, inode = value.partition(":")
    try:
        status = os.fstat(int(fd))
        return int(fd) if stat.S_ISFIFO(status.st_mode) and status.st_ino == int(inode) else None
    except (OSError, ValueError, OverflowError):  # no launcher of ours, or not any more
        return None


def tell(value: str, statement: Statement) -> None:
    """Say it to the launcher; ``value`` is that of BYTEPS_BLAME, nothing happens without it. Never blocks."""
    fd = descriptor(value)
    line = msgspec.json.encode(statement) + b"\n"
    if fd is None or len(line) > select.PIPE_BUF:  # longer only if somebody's host has a name like a novel
        return
    try:
        os.set_blocking(fd, False)
        os.write(fd, line)
    except OSError:  # the launcher has gone, or does not listen
        pass


def read(line: bytes) -> Statement | None:
    """A line of the pipe; None for one that is none of ours: the user's program has the pipe, too."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def words(who: Whom, error: BaseException) -> Failed | Noticed:
    """What a process says that this error ends.

    A script may have wrapped the loss of a peer into an exception of its own. Who has waited for another one
    in vain has only noticed, too.
    """
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if isinstance(cause, PeerLostError):
            return Noticed(who, lost_by(cause), brief(cause.reason or str(cause)))
        if isinstance(cause, (JoinTimeoutError, OperationTimeoutError)):
            return Noticed(who, None, brief(f"{cause}"))
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return Failed(who, brief(f"{type(error).__name__}: {error}"))


def lost_by(error: PeerLostError) -> Whom | None:
    """Whom the error is about."""
    return Whom(error.role, error.rank, error.host, error.pid) if error.role else None


def brief(text: str) -> str:
    """The first line that is not empty; a traceback of the others is in the log."""
    return clean(next((line for line in text.splitlines() if line.strip()), ""), MAX_TEXT)
