"""What a running epoch is besides its members: declared tensors, barriers, and who waits for what. Pure.

A question of a member is a method of ``Epoch``. It changes the epoch and returns what follows: messages
(``Tell``) and lines for the log (``Say``). The service carries them out and asks ``due_at`` when to look
again. Nothing here knows connections: members are meant by role and rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from logging import ERROR, INFO, WARNING
from typing import Union

from byteps.control.messages import (
    Barrier,
    Declare,
    Declared,
    Lacking,
    Message,
    NamesDiffer,
    Placed,
    Prepare,
    Prepared,
    Retire,
    View,
    Waiting,
)
from byteps.scheduler import names
from byteps.scheduler.barriers import Answers, Barriers
from byteps.scheduler.declarations import Declarations, Told
from byteps.scheduler.placement import Placement
from byteps.scheduler.preparations import Preparations
from byteps.scheduler.value import Value

__all__ = ["Effect", "Epoch", "Say", "Tell"]

LOOK_S = 1.0  # while somebody waits


@dataclass(frozen=True)
class Tell:
    """A message to a worker or a server; ``rank`` None: to all of them that are in the epoch."""

    role: str
    message: Message
    rank: int | None = None


@dataclass(frozen=True)
class Say:
    """A line for the log. ``about``: one of those whose lines are limited, because members can cause many."""

    level: int
    text: str
    about: str = ""


Effect = Union[Tell, Say]  # noqa: UP007
Effects = list[Effect]
Answer = tuple[int, int, list[Placed]]  # to a Declare: rank, its number, places


class Epoch(Value):
    """One epoch, from the moment that everybody is there; ``told`` is the last number of the one before."""

    def __init__(self, view: View, placement: Placement, partition_bytes: int, told: int = 0) -> None:
        self.view = view
        self.declarations = Declarations(view.workers(), placement, partition_bytes)
        self.preparations: Preparations[Answer] = Preparations(view.servers(), told)
        self.barriers = Barriers(view.workers())
        self._pace = names.Pace()
        self._names_told = False
        self._stalled_since: float | None = None

    # Questions of members

    def declare(self, now: float, rank: int, message: Declare) -> Effects:
        outcome = self.declarations.declare(rank, message.tensors, now)
        effects = _conflicts(rank, outcome.conflicts)
        if outcome.retired:
            effects.append(Tell("server", Retire(outcome.retired)))
        if outcome.new:
            effects.append(Tell("server", Prepare(self.preparations.tell(), outcome.new)))
        effects += self._declared(self.preparations.answer((rank, message.id, outcome.placed)))
        if self._names_told and self.declarations.partial_since() is None:
            effects += self._tell_names(names.Difference())
        return effects

    def lacking(self, rank: int, message: Lacking) -> Effects:
        return _conflicts(rank, self.declarations.lack(rank, message.tensor_id, message.reason))

    def prepared(self, rank: int, message: Prepared) -> Effects:
        effects: Effects = []
        for refusal in message.refused:
            why = f"{self.view.servers()[rank]} cannot hold it: {refusal.reason}"
            if text := self.declarations.refuse(refusal.tensor_id, why, refusal.lack):
                effects.append(Say(ERROR, text, f"refusals of server {rank}"))
                effects.append(Tell("server", Retire([refusal.tensor_id])))  # those that could have held it
        return effects + self._declared(self.preparations.confirm(rank, message.id))

    def barrier(self, rank: int, message: Barrier) -> Effects:
        return _opened(self.barriers.arrive(rank, message.id))

    def depart(self, rank: int) -> Effects:
        """A worker has left for good."""
        self.declarations.depart()
        effects = _opened(self.barriers.depart(rank))
        if self._names_told:  # from now on it is the departure that operations fail of
            effects += self._tell_names(names.Difference())
        return effects

    # Time

    def due_at(self, now: float) -> float | None:
        """When to look again at who waits for whom; None when nobody waits."""
        if not (self.barriers.missing() or self.preparations.missing()):
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = now
        times = [] if self._stalled_since is None else [now + LOOK_S]
        if since := self.declarations.partial_since():
            times.append(self._pace.due_at(*since))
        return min(times, default=None)

    def look(self, now: float, patience_s: float) -> Effects:
        """Tell those who have waited for long whom they wait for, and all which names differ."""
        return self._name_who_holds_up(now, patience_s) + self._compare_names(now)

    def _name_who_holds_up(self, now: float, patience_s: float) -> Effects:
        if self._stalled_since is None or now - self._stalled_since < patience_s:
            return []
        self._stalled_since = now
        at_barriers, declaring = self.barriers.missing(), self.preparations.missing()
        waiting = {rank for rank, _, _ in self.preparations.waiting()}
        return [
            *(Tell("worker", Waiting(at_barriers), rank) for rank in self.barriers.waiting()),
            *(Tell("worker", Waiting(declaring), rank) for rank in sorted(waiting)),
        ]

    def _compare_names(self, now: float) -> Effects:
        since = self.declarations.partial_since()
        if since is None or now < self._pace.due_at(*since):
            return []
        partials = self.declarations.partials()
        found = names.difference(now, partials, self.view.size, self.barriers.waiting())
        return self._tell_names(found) if self._pace.is_news(now, found) else []

    def _tell_names(self, found: names.Difference) -> Effects:
        self._names_told = bool(found.text)
        effects: Effects = [Tell("worker", NamesDiffer(found.text, found.crossed))]
        return [Say(WARNING if found.crossed else INFO, found.text), *effects] if found.text else effects

    def _declared(self, answers: list[Answer]) -> Effects:
        return [
            Tell("worker", Declared(number, self.declarations.settled(placed)), rank)
            for rank, number, placed in answers
        ]


def _conflicts(rank: int, told: Told) -> Effects:
    texts = dict.fromkeys(conflict.text for _, conflict in told)
    return [
        *(Tell("worker", conflict, other) for other, conflict in told),
        *(Say(ERROR, text, f"declarations of worker {rank}") for text in texts),
    ]


def _opened(answers: Answers) -> Effects:
    return [Tell("worker", done, rank) for rank, done in answers]
