"""A step walked back: which part of it was computing, and what each wait in it waited for. Pure.

Theory. A rank's step is computing but for the times at which it waits for results. A wait is for one tensor,
and ends with the last piece of its result. The way of that piece has milestones, on one clock:

    ready ─▶ queued ─▶ sent ─▶ arrived ─▶ all arrived ─▶ summed ─▶ answered ─▶ landed ─▶ done
      queue   codec, uplink  uplink   rank q         server   downlink   downlink   codec, local

What lies between two of them inside the wait is the time of that part; so the parts of a wait add up to it,
and those of a step to the step. Between our arrival and that of the last rank q we wait for q, and what q did
meanwhile says why: until its gradient was ready it computed (``rank``), then its own queue, codec and uplink.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from byteps.observe.recording import Recording
from byteps.observe.ring import WHOLE, Event
from byteps.observe.rounds import Step, Wait, WorkerRound, steps, waits, worker_rounds
from byteps.observe.window import chosen

__all__ = ["Cause", "StepParts", "walked"]

Key = tuple[int, int, int]  # tensor, piece, round


class Cause(NamedTuple):
    """What time was spent for: a kind, and whose it was; -1: nobody's in particular."""

    kind: str  # compute, queue, codec, uplink, rank, server, downlink, local, unknown
    rank: int = -1
    server: int = -1


@dataclass
class StepParts:
    """One step of one rank."""

    rank: int
    number: int
    length_ns: int
    parts: dict[Cause, int] = field(default_factory=dict)  # nanoseconds; they add up to the length
    tensors: dict[int, int] = field(default_factory=dict)  # nanoseconds waited, by tensor


@dataclass
class _Worker:
    """What one rank has seen, by key."""

    rank: int
    host: str
    rounds: dict[tuple[int, int], WorkerRound]
    sent: dict[Key, Event] = field(default_factory=dict)
    landed: dict[Key, Event] = field(default_factory=dict)
    last_landed: dict[tuple[int, int], Event] = field(default_factory=dict)
    encoded: dict[Key, Event] = field(default_factory=dict)
    decoded: dict[Key, Event] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


@dataclass
class _Sum:
    """What a server has seen of one key."""

    server: int
    arrived: dict[int, int] = field(default_factory=dict)  # by rank
    answered: dict[int, int] = field(default_factory=dict)
    summed_ns: int = 0


def walked(recordings: Sequence[Recording]) -> list[StepParts]:
    """Every whole step of every rank, in the order of ranks and steps."""
    members = chosen(recordings)
    workers = {h.rank: _worker(h.rank, h.host, events) for h, events in members if h.role == "worker"}
    sums: dict[Key, _Sum] = {}
    for header, events in members:
        if header.role == "server":
            _collect(sums, header.rank, events)
    job = _Job(workers, sums)
    return [job.step(worker, step) for worker in workers.values() for step in worker.steps]


def _worker(rank: int, host: str, events: list[Event]) -> _Worker:
    rounds = {(each.tensor, each.round): each for each in worker_rounds(events)}
    found = _Worker(rank, host, rounds, steps=steps(events), waits=list(waits(events)))
    tables = {"sent": found.sent, "landed": found.landed, "encoded": found.encoded, "decoded": found.decoded}
    for event in events:
        table = tables.get(event.stage)
        if table is not None and event.piece != WHOLE:
            table[event.tensor, event.piece, event.round] = event
            if event.stage == "landed":
                found.last_landed[event.tensor, event.round] = event
    return found


def _collect(sums: dict[Key, _Sum], server: int, events: list[Event]) -> None:
    for event in events:
        if event.stage not in ("arrived", "summed", "answered"):
            continue
        key = event.tensor, event.piece, event.round
        known = sums.get(key)
        if known is None:
            known = sums[key] = _Sum(server)
        if event.stage == "arrived":
            known.arrived[event.peer] = event.at_ns
        elif event.stage == "answered":
            known.answered[event.peer] = event.at_ns
        else:
            known.summed_ns = event.at_ns


Parts = Iterator[tuple[Cause, int]]  # each cause, and until when it lasted


class _Job:
    def __init__(self, workers: dict[int, _Worker], sums: dict[Key, _Sum]) -> None:
        self._workers = workers
        self._sums = sums

    def step(self, worker: _Worker, step: Step) -> StepParts:
        """The parts of one step."""
        found = StepParts(worker.rank, step.number, step.end_ns - step.begin_ns)
        parts: dict[Cause, int] = defaultdict(int)
        at = step.begin_ns
        for wait in sorted(worker.waits, key=lambda each: each.end_ns):
            begin, end = max(wait.begin_ns, at), min(wait.end_ns, step.end_ns)
            if end <= begin:
                continue
            parts[Cause("compute", worker.rank)] += begin - at
            at = begin
            for cause, until in self._wait(worker, wait):
                until = min(max(until, at), end)
                parts[cause] += until - at
                at = until
            parts[Cause("local", worker.rank)] += end - at
            found.tensors[wait.tensor] = found.tensors.get(wait.tensor, 0) + end - begin
            at = end
        parts[Cause("compute", worker.rank)] += step.end_ns - at
        found.parts = {cause: length for cause, length in parts.items() if length > 0}
        return found

    def _wait(self, worker: _Worker, wait: Wait) -> Parts:
        own = worker.rounds.get((wait.tensor, wait.round))
        if own is None:
            yield Cause("unknown", worker.rank), wait.end_ns
            return
        pusher, last = self._last_landed(worker, wait)
        if last is None or pusher is None:
            yield from self._on_one_machine(worker, wait)
            return
        key = last.tensor, last.piece, last.round
        known = self._sums.get(key)
        yield from self._pushed(pusher, key)
        if known is not None and pusher.rank in known.arrived:
            yield Cause("uplink", pusher.rank, known.server), known.arrived[pusher.rank]
            slowest = max(known.arrived, key=lambda rank: known.arrived[rank])
            if slowest != pusher.rank:
                yield from self._late(slowest, key, known)
            yield Cause("server", server=known.server), known.summed_ns
        yield Cause("downlink", pusher.rank, last.peer), last.at_ns
        decoded = pusher.decoded.get(key)
        if decoded is not None:
            yield Cause("codec", pusher.rank), decoded.at_ns
        yield Cause("local", worker.rank), wait.end_ns

    def _last_landed(self, worker: _Worker, wait: Wait) -> tuple[_Worker | None, Event | None]:
        """The piece that ended the wait; of another rank of the machine where that has pushed for us."""
        key = wait.tensor, wait.round
        beside = [each for each in self._workers.values() if each.host == worker.host]
        found = [(each, each.last_landed[key]) for each in beside if key in each.last_landed]
        mine = [pair for pair in found if pair[0] is worker] or found
        return max(mine, key=lambda pair: pair[1].at_ns, default=(None, None))

    def _pushed(self, worker: _Worker, key: Key) -> Parts:
        """Until the piece was sent."""
        own = worker.rounds.get((key[0], key[2]))
        sent = worker.sent.get(key)
        if own is None or sent is None:
            return
        yield Cause("queue", worker.rank), own.queued_ns
        encoded = worker.encoded.get(key)
        if encoded is not None:
            yield Cause("queue", worker.rank), encoded.at_ns - encoded.took_ns
            yield Cause("codec", worker.rank), encoded.at_ns
        yield Cause("uplink", worker.rank, sent.peer), sent.at_ns

    def _late(self, rank: int, key: Key, known: _Sum) -> Parts:
        """Another rank's contribution was the last: what did it do until it came?"""
        other = self._workers.get(rank)
        if other is None:  # it has left no recording
            yield Cause("rank", rank), known.arrived[rank]
            return
        own = other.rounds.get((key[0], key[2]))
        yield Cause("rank", rank), known.arrived[rank] if own is None else own.ready_ns
        yield from self._pushed(other, key)
        yield Cause("uplink", rank, known.server), known.arrived[rank]

    def _on_one_machine(self, worker: _Worker, wait: Wait) -> Parts:
        """No server took part: the ranks of the machine wait for the last of them."""
        key = wait.tensor, wait.round
        ready = {
            rank: each.rounds[key].ready_ns for rank, each in self._workers.items() if key in each.rounds
        }
        slowest = max(ready, key=lambda rank: ready[rank], default=worker.rank)
        if slowest != worker.rank:
            yield Cause("rank", slowest), ready[slowest]
        yield Cause("local", worker.rank), wait.end_ns
