"""Do two jobs use one address? What the scheduler can see of it, and whom it refuses. Pure.

Theory. Nothing keeps people from starting two jobs with one DMLC_PS_ROOT_PORT, one job id and no secret. Only
one of the two schedulers gets the port, and the members of both jobs come to it. A sum with a stranger in it
is wrong and looks right; so what could be a mixture must not run, and what turns out to be one must end.

    what is seen                                                     how sure    who is refused
    --------------------------------------------------------------------------------------------------
    a launch id that is not the scheduler's (or none where it        certain     the comer: all others
    has one, or one where it has none)                                           belong together
    without BYTEPS_JOB_ID: a worker whose script has another name    nearly      the comer; who means it
    than another's, or that on one host has another user or folder               sets BYTEPS_JOB_ID
    a place that another living process has, a server more than      a mistake   the comer, if a launcher
    DMLC_NUM_SERVER, or a second scheduler for this address:         or two      started them: ids tell
                                                                     jobs
        by hand, while the first epoch forms                                     everybody: nobody can tell
                                                                                 whose a member is
        by hand, and the comer was started before the epoch that                 everybody: the epoch may be
        runs was complete (not longer than members wait for each                 a mixture
        other, BYTEPS_CONNECT_TIMEOUT_S)
        by hand, otherwise                                                       the comer: the members
                                                                                 were there before it

Not evidence, because an honest job may have it: other folders and users on other hosts, other hosts or one
host name for several containers, other arguments, other process numbers. Two jobs that are alike in all of
this are only told apart by there being too many of them. Therefore a job that has neither a launch id nor a
BYTEPS_JOB_ID waits ``SETTLE_S`` when it is complete, for the second scheduler or server to come.
"""

from __future__ import annotations

from collections.abc import Iterable

from byteps.control.machine import key
from byteps.control.messages import Origin, Rival
from byteps.scheduler.roster import Seat, Standing

__all__ = ["SENTENCE", "SETTLE_S", "claims", "foreign", "perhaps", "rival"]

SENTENCE = "two jobs use this port; set DMLC_PS_ROOT_PORT or BYTEPS_JOB_ID"
SETTLE_S = 1.0


def foreign(seat: Seat, others: Iterable[Seat], launch: str, named: bool) -> str:
    """How this process shows that it belongs to another job than the scheduler and the others, or nothing."""
    theirs = seat.register.origin
    if theirs.launch != launch:
        return f"{SENTENCE}: {seat} {_launched(theirs)}, and the scheduler {_launched(Origin(launch=launch))}"
    if launch or named or seat.register.role != "worker":
        return ""
    for other in others:
        if other.register.role == "worker" and other.number != seat.number:
            difference = _difference(seat, other)
            if difference:
                return f"{SENTENCE}: {difference}; if both are one job, set BYTEPS_JOB_ID alike everywhere"
    return ""


def _launched(origin: Origin) -> str:
    return f"was started by launch {origin.launch}" if origin.launch else "was started by hand"


def _difference(seat: Seat, other: Seat) -> str:
    here, there = seat.register.origin, other.register.origin
    if here.program != there.program and here.program and there.program:
        return f"{seat} runs {here.program}, {other} runs {there.program}"
    if key(seat.register) != key(other.register):
        return ""
    if here.user != there.user and here.user and there.user:
        return f"{seat} is of user {here.user}, {other} of {there.user} on the same host"
    if here.folder != there.folder and here.folder and there.folder:
        return f"{seat} works in {here.folder}, {other} in {there.folder} on the same host"
    return ""


def rival(said: Rival, launch: str) -> str:
    """What a second scheduler proves, or nothing: launch ids keep the members of the two apart."""
    if launch or said.origin.launch:
        return ""
    who = f"host {said.host}, pid {said.pid}, folder {said.origin.folder}, user {said.origin.user}"
    return f"{SENTENCE}: a second scheduler was started for this address ({who})"


def perhaps(text: str, launch: str) -> str:
    """Why somebody is refused, and that it may be of another job, if launch ids do not tell that."""
    return text if launch else f"{text}; or {SENTENCE}"


def claims(seats: Iterable[Seat], crew: Iterable[int], comer: Seat) -> list[Seat]:
    """Those whose places the comer may not take: who waits, and who is suspended and may come back.

    A member of the epoch before comes back to any place that it likes: ranks may be dealt anew.
    """
    stranger = comer.incarnation not in crew
    return [
        seat
        for seat in seats
        if seat.standing is Standing.WAITING or (stranger and seat.standing is Standing.SUSPENDED)
    ]
