"""Who is the reason that a job failed: pure, from what its launcher has seen and was told, in that order.

When one process of a job fails, all others end too, in any order and mostly with a code of their own. What
each of them can know, and says (``byteps.control.blame``):

    who            knows                                         says
    -------------  --------------------------------------------  ---------------------------------------------
    worker, server its own error                                 Failed, before it leaves and others notice
                   that it cannot go on without another          Noticed, before its own program learns of it
    scheduler      who was lost first, and how: it closed its    Verdict, before it tells the members
                   connection, went silent, said why it fails,
                   or left while another still needed it
    a rank         how the scheduler it has started ended        Verdict, before its own program learns of it
    the launcher   codes and signals; which it has sent itself;  (the judgement)
                   who is stopped

So of every failure the launcher hears before it sees an end that it led to. A fact counts against a process:

    fact                                     counts against                  unless
    ---------------------------------------  ------------------------------  ---------------------------------
    NotStarted                               it
    Ended with another code than 0           it                              it had Noticed another one before
    Failed                                   the speaker                     so, or it ended with 0 after all
    Verdict about X                          X; whom X had Noticed before    X and all workers ended with 0
    Noticed X, when there is nothing above   X                               X and all workers ended with 0

The first fact that counts names the culprit; everything known of it then says what happened, the surest
first: its code, its own words, the words of those that lost it. Ends that a signal of the launcher led to are
no facts, and neither is a code of 0: a rank that ends with 0 is blamed only by those that still needed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from byteps.control.blame import Failed, Joined, Noticed, Verdict, Whom
from byteps.control.sentences import lost
from byteps.launcher.facts import Ended, Fact, Halted, NotStarted, Told, how

__all__ = ["Judgement", "judge"]

# A process of this launcher; a member that is none, as the scheduler that a rank started; nobody we know.
Subject = int | Whom | None


@dataclass(frozen=True)
class Judgement:
    """The culprit and what happened to it; ``process``: the one whose last lines are of interest."""

    who: str
    what: str
    code: int
    process: int | None = None

    def __str__(self) -> str:
        return f"{self.who} {self.what}".strip()


@dataclass(frozen=True)
class _Charge:
    against: Subject
    text: str = ""  # what others say of it; empty: it is known by its own end or words


def judge(names: Sequence[str], workers: Collection[int], facts: Sequence[Fact]) -> Judgement | None:
    """The culprit, or None when nothing counts against anybody."""
    members = _members(facts)
    codes: dict[Subject, int] = {fact.process: fact.code for fact in facts if isinstance(fact, Ended)}
    charge = _first_charge(members, codes, facts)
    ended_well = bool(workers) and all(codes.get(worker) == 0 for worker in workers)
    if charge is not None and charge.text and ended_well and codes.get(charge.against) == 0:
        charge = _first_charge(members, codes, facts, own=True)  # they chose to, whatever they lost before
    if charge is None:
        return None
    first_code = next((code for code in codes.values() if code), 1)
    if charge.against is None:
        return Judgement("", charge.text, first_code)
    if isinstance(charge.against, int):
        name = _name(names[charge.against], charge.against, members)
        return _process(name, charge.against, charge.text, facts, first_code)
    return _member(charge.against, charge.text, facts, first_code)


def _members(facts: Sequence[Fact]) -> dict[tuple[str, int], int]:
    """Processes by role and rank. A job that goes on with fewer members numbers them anew: the last holds."""
    last: dict[int, tuple[str, int]] = {}
    for fact in facts:
        if isinstance(fact, Told) and fact.own and isinstance(fact.statement, Joined):
            last.pop(fact.process, None)
            last[fact.process] = fact.statement.who.role, fact.statement.who.rank
    return {member: process for process, member in last.items()}


# ---- against whom


def _first_charge(
    members: dict[tuple[str, int], int],
    codes: dict[Subject, int],
    facts: Sequence[Fact],
    *,
    own: bool = False,
) -> _Charge | None:
    """The table above, fact by fact. ``own``: only what processes did, or said of themselves."""
    noticed: dict[Subject, _Charge] = {}  # the first loss that each one noticed

    def subject(whom: Whom | None) -> Subject:
        if whom is None:
            return None
        return members.get((whom.role, whom.rank), Whom(whom.role, whom.rank))

    for fact in facts:
        if isinstance(fact, NotStarted):
            return _Charge(fact.process)
        if isinstance(fact, Ended) and fact.code and fact.process not in noticed:
            return _Charge(fact.process)
        if not isinstance(fact, Told):
            continue
        said = fact.statement
        speaker = fact.process if fact.own else subject(said.who)
        if isinstance(said, Failed) and speaker not in noticed and codes.get(speaker) != 0:
            return _Charge(speaker)
        if isinstance(said, Verdict) and not own:
            return _cause(_Charge(subject(said.about), said.text), noticed)
        if isinstance(said, Noticed | Verdict) and subject(said.about) != speaker:  # to be lost is no excuse
            noticed.setdefault(speaker, _Charge(subject(said.about), said.text))
    charges = [] if own else list(noticed.values())
    return next((charge for charge in charges if charge.against is not None), charges[0] if charges else None)


def _cause(charge: _Charge, noticed: dict[Subject, _Charge]) -> _Charge:
    """Who was lost by the one that was lost by the one that ..."""
    seen: set[Subject] = {None}
    while charge.against not in seen and charge.against in noticed:
        seen.add(charge.against)
        charge = noticed[charge.against]
    return charge


# ---- what is said of it


def _name(label: str, process: int, members: dict[tuple[str, int], int]) -> str:
    """Servers are numbered by the scheduler in the order of their arrival: others call it by that number."""
    for (role, rank), place in members.items():
        if place == process and role == "server" and label.partition("@")[0] != f"server {rank}":
            return f"{label} (server {rank} to the others)"
    return label


def _process(name: str, process: int, text: str, facts: Sequence[Fact], first_code: int) -> Judgement:
    about = [fact for fact in facts if fact.process == process]
    for fact in about:
        if isinstance(fact, NotStarted):
            return Judgement(name, "could not be started", fact.code, process)
    code = next((fact.code for fact in about if isinstance(fact, Ended)), None)
    failed = _failed(fact for fact in about if isinstance(fact, Told) and fact.own)
    halted = next((fact.pid for fact in about if isinstance(fact, Halted)), None)
    if code:
        said = f": {failed.text}" if failed is not None and code < 128 else ""
        return Judgement(name, how(code) + said, code, process)
    if failed is not None:  # it was on its way out, and we did not wait
        return Judgement(name, f"failed: {failed.text}", failed.code, process)
    if code == 0:
        return Judgement(name, f"exited with code 0 too early: {text}", first_code, process)
    stopped = "" if halted is None else f"; its process {halted} is stopped (SIGSTOP)"
    return Judgement(name, lost(f"{text}{stopped}"), first_code, process)


def _member(whom: Whom, text: str, facts: Sequence[Fact], first_code: int) -> Judgement:
    statements = [fact for fact in facts if isinstance(fact, Told)]
    verdicts = [fact.statement for fact in statements if isinstance(fact.statement, Verdict | Noticed)]
    known = [said.about for said in verdicts if said.about is not None]
    known += [fact.statement.who for fact in statements if not fact.own]
    same = [each for each in known if (each.role, each.rank) == (whom.role, whom.rank)]
    name = str(max(same, key=lambda each: (bool(each.pid), bool(each.host)), default=whom))
    for said in verdicts:
        if isinstance(said, Verdict) and said.code and said.about in same:
            return Judgement(name, how(said.code), said.code)
    failed = _failed(fact for fact in statements if not fact.own and fact.statement.who in same)
    if failed is not None:
        what = how(failed.code) if failed.code > 128 else f"failed: {failed.text}"
        return Judgement(name, what, failed.code)
    return Judgement(name, lost(text), first_code)


def _failed(facts: Iterable[Told]) -> Failed | None:
    return next((fact.statement for fact in facts if isinstance(fact.statement, Failed)), None)
