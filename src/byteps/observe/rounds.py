"""What happened to a tensor in one round, put together from the events of one process. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from byteps.observe.ring import Event

__all__ = [
    "ServerRound",
    "Span",
    "Step",
    "Wait",
    "WorkerRound",
    "server_rounds",
    "steps",
    "waits",
    "worker_rounds",
]


@dataclass
class Span:
    """From the first to the last of some events."""

    first_ns: int
    last_ns: int
    bytes: int = 0

    def add(self, event: Event) -> None:
        self.first_ns = min(self.first_ns, event.at_ns)
        self.last_ns = max(self.last_ns, event.at_ns)
        self.bytes += event.bytes


def _add(spans: dict[int, Span], event: Event) -> None:
    span = spans.get(event.peer)
    if span is None:
        spans[event.peer] = Span(event.at_ns, event.at_ns, event.bytes)
    else:
        span.add(event)


@dataclass
class WorkerRound:
    """An operation as its worker saw it; 0: that was not seen."""

    tensor: int
    round: int
    ready_ns: int = 0
    queued_ns: int = 0
    done_ns: int = 0
    bytes: int = 0
    failed: bool = False
    codec_ns: int = 0  # of threads that compressed and decompressed
    arrived_ns: int = 0  # this rank came last, on the board of its machine
    summed_ns: int = 0  # this rank has completed the sum there
    sent: dict[int, Span] = field(default_factory=dict)  # by server
    landed: dict[int, Span] = field(default_factory=dict)
    last_piece: int = 0  # that landed

    def stages(self) -> Iterator[tuple[str, int, int]]:
        """One after the other, from its begin to its end, which are known: names, begins and ends."""
        if not self.sent or not self.landed:
            yield "local", self.ready_ns, self.done_ns
            return
        pushing = min(each.first_ns for each in self.sent.values())
        pushed = max(each.last_ns for each in self.sent.values())
        pulling = max(pushed, min(each.first_ns for each in self.landed.values()))
        pulled = max(each.last_ns for each in self.landed.values())
        yield "queue", self.ready_ns, pushing
        yield "push", pushing, pushed
        yield "wait", pushed, pulling
        yield "pull", pulling, max(pulling, pulled)
        yield "finish", max(pulling, pulled), self.done_ns

    def _take(self, event: Event) -> None:
        stage = event.stage
        if stage == "ready":
            self.ready_ns, self.bytes = event.at_ns, event.bytes
        elif stage == "queued":
            self.queued_ns = max(self.queued_ns, event.at_ns)
        elif stage == "sent":
            _add(self.sent, event)
        elif stage == "landed":
            _add(self.landed, event)
            self.last_piece = event.piece
        elif stage in ("encoded", "decoded"):
            self.codec_ns += event.took_ns
        elif stage == "arrived":
            self.arrived_ns = event.at_ns
        elif stage == "summed":
            self.summed_ns = event.at_ns
        elif stage == "done":
            self.done_ns, self.failed = event.at_ns, bool(event.note)


@dataclass
class ServerRound:
    """A round of a tensor as a server saw it: all pieces that it holds."""

    tensor: int
    round: int
    arrived: dict[int, Span] = field(default_factory=dict)  # by rank
    answered: dict[int, Span] = field(default_factory=dict)
    summed: Span | None = None

    def _take(self, event: Event) -> None:
        if event.stage == "arrived":
            _add(self.arrived, event)
        elif event.stage == "answered":
            _add(self.answered, event)
        elif event.stage == "summed":
            if self.summed is None:
                self.summed = Span(event.at_ns, event.at_ns, event.bytes)
            else:
                self.summed.add(event)

    @property
    def last_rank(self) -> int:
        """Whose contribution came last; -1: none has come."""
        return max(self.arrived, key=lambda rank: self.arrived[rank].last_ns, default=-1)

    @property
    def late_ns(self) -> int:
        """How long the others waited for the last one."""
        times = sorted(span.last_ns for span in self.arrived.values())
        return times[-1] - times[-2] if len(times) > 1 else 0


_OF_WORKERS = frozenset(
    ("ready", "queued", "sent", "landed", "encoded", "decoded", "arrived", "summed", "done")
)
_OF_SERVERS = frozenset(("arrived", "summed", "answered"))


def worker_rounds(events: Iterable[Event]) -> list[WorkerRound]:
    """All operations, in the order in which they were asked for."""
    found: dict[tuple[int, int], WorkerRound] = {}
    for event in events:
        if event.stage not in _OF_WORKERS:
            continue
        key = event.tensor, event.round
        round_ = found.get(key)
        if round_ is None:
            round_ = found[key] = WorkerRound(*key)
        round_._take(event)
    return sorted(found.values(), key=lambda each: each.ready_ns)


def server_rounds(events: Iterable[Event]) -> list[ServerRound]:
    """All rounds, in the order in which they began."""
    found: dict[tuple[int, int], ServerRound] = {}
    for event in events:
        if event.stage not in _OF_SERVERS:
            continue
        key = event.tensor, event.round
        round_ = found.get(key)
        if round_ is None:
            round_ = found[key] = ServerRound(*key)
        round_._take(event)
    return list(found.values())


@dataclass(frozen=True)
class Step:
    """From the end of the step before to the end of this one."""

    number: int
    begin_ns: int
    end_ns: int


def steps(events: Iterable[Event]) -> list[Step]:
    """The steps whose begin and end are known; of the first one only the end is."""
    marks = [(event.round, event.at_ns) for event in events if event.stage == "step"]
    return [Step(number, before, at) for (_, before), (number, at) in pairwise(marks)]


@dataclass(frozen=True)
class Wait:
    """Somebody waited for the result of an operation."""

    tensor: int
    round: int
    begin_ns: int
    end_ns: int


def waits(events: Iterable[Event]) -> Iterator[Wait]:
    """Every wait that has ended, in the order of their ends."""
    for event in events:
        if event.stage == "had":
            yield Wait(event.tensor, event.round, event.at_ns - event.took_ns, event.at_ns)
