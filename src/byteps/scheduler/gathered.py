"""The numbers of the whole job for Prometheus, as its members have told them last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from byteps.control.messages import Counted, Numbers
from byteps.observe import metrics
from byteps.observe.http import Answer, HttpServer
from byteps.observe.metrics import Sample
from byteps.observe.reporter import listening
from byteps.scheduler.events import State

__all__ = ["Gathered", "Told", "job_samples"]

MOST_SHOWN = 256  # samples of a member, for an observer
LEAST_S = 0.5  # between two reports of a member: more of them are ignored


class Told(NamedTuple):
    """What a member has told, and when."""

    role: str
    rank: int
    at: float
    samples: Sequence[Sample]


def job_samples(now: float, state: State, told: Mapping[int, Told]) -> list[Sample]:
    """What the scheduler itself knows."""
    members = Counter((seat.register.role, seat.standing.name.lower()) for seat in state.seats.values())
    found = [Sample("byteps_members", who, count) for who, count in members.items()]
    return [*found, Sample("byteps_epoch", (), state.epoch)]


class Gathered:
    """Keeps the last report of each member, and serves them all. Written by the loop, read by one thread."""

    def __init__(self, port: int) -> None:
        self._told: dict[int, Told] = {}
        self._own: list[Sample] = []
        sock = listening(port) if port else None
        self._http = None if sock is None else HttpServer(sock, self._page)

    def hear(self, seat: int, told: Told, state: State) -> None:
        """A report has come."""
        before = self._told.get(seat)
        if before is None or told.at - before.at >= LEAST_S:
            self._told = {**self._told, seat: told}  # a new one: the other thread may be reading
        self._own = job_samples(told.at, state, self._told)

    def numbers(self, number: int, now: float, state: State, text: str) -> Numbers:
        """What is known, for an observer."""
        hosts = {seat.number: seat.register.host for seat in state.seats.values()}
        members = [
            Counted(told.role, told.rank, hosts.get(seat, ""), now - told.at, list(told.samples[:MOST_SHOWN]))
            for seat, told in self._told.items()
        ]
        members.sort(key=lambda each: (each.role, each.rank))
        return Numbers(number, now, state.phase.value, text[:4_000], members)

    def forget(self, seat: int) -> None:
        """Its connection has ended."""
        self._told = {number: told for number, told in self._told.items() if number != seat}

    def close(self) -> None:
        """No more readers."""
        if self._http is not None:
            self._http.close()

    def _page(self, path: str) -> Answer | None:
        if path.partition("?")[0] != "/metrics":
            return None
        members = [(told.role, told.rank, told.samples) for told in self._told.values()]
        body = metrics.text([("scheduler", 0, self._own), *members])
        return Answer(body, "text/plain; version=0.0.4; charset=utf-8")
