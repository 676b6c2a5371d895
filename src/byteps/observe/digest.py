"""Totals of what the rings say, for metrics: counters only ever grow. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from byteps.observe.ring import Event

__all__ = ["BUCKETS_S", "Digest"]

# Upper bounds of a histogram of seconds; the last one has none.
BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_OPEN_ROUNDS = 65_536  # that are remembered: one that never ends must not stay for ever


@dataclass
class Histogram:
    """How often something took so long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        place = next((i for i, bound in enumerate(BUCKETS_S) if seconds <= bound), len(BUCKETS_S))
        self.counts[place] += 1
        self.total_s += seconds


@dataclass
class Digest:
    """Fed with every event once, in the order of each thread."""

    steps: Histogram = field(default_factory=Histogram)
    operations: Histogram = field(default_factory=Histogram)  # from ready to done
    failed: int = 0
    exposed_wait_s: float = 0.0
    codec_s: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # by side: encode, decode
    link_bytes: Counter[tuple[int, str]] = field(default_factory=Counter)  # by peer and direction, payloads
    waited_for_s: defaultdict[int, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # by the rank that came last
    rounds: int = 0
    in_flight_bytes: dict[int, int] = field(default_factory=dict)  # by server
    lost_events: int = 0
    _last_step_ns: int = 0
    _ready: OrderedDict[tuple[int, int], int] = field(default_factory=OrderedDict)
    _arrivals: OrderedDict[tuple[int, int, int], list[tuple[int, int]]] = field(default_factory=OrderedDict)

    def take(self, events: Iterable[Event]) -> None:
        """Some more events."""
        for event in events:
            handle = _HANDLERS.get(event.stage)
            if handle is not None:
                handle(self, event)
        for table in (self._ready, self._arrivals):
            while len(table) > _OPEN_ROUNDS:
                table.popitem(last=False)

    def _step(self, event: Event) -> None:
        if self._last_step_ns:
            self.steps.add((event.at_ns - self._last_step_ns) / 1e9)
        self._last_step_ns = event.at_ns

    def _begin(self, event: Event) -> None:
        self._ready[event.tensor, event.round] = event.at_ns

    def _done(self, event: Event) -> None:
        ready_ns = self._ready.pop((event.tensor, event.round), None)
        self.failed += event.note
        if ready_ns is not None:
            self.operations.add((event.at_ns - ready_ns) / 1e9)

    def _had(self, event: Event) -> None:
        self.exposed_wait_s += event.took_ns / 1e9

    def _encoded(self, event: Event) -> None:
        self.codec_s["encode"] += event.took_ns / 1e9

    def _decoded(self, event: Event) -> None:
        self.codec_s["decode"] += event.took_ns / 1e9

    def _sent(self, event: Event) -> None:
        self.link_bytes[event.peer, "sent"] += event.bytes
        self.in_flight_bytes[event.peer] = self.in_flight_bytes.get(event.peer, 0) + event.bytes

    def _landed(self, event: Event) -> None:
        self.link_bytes[event.peer, "received"] += event.bytes

    def _credit(self, event: Event) -> None:
        self.in_flight_bytes[event.peer] = event.bytes

    def _arrived(self, event: Event) -> None:
        self.link_bytes[event.peer, "received"] += event.bytes
        key = event.tensor, event.piece, event.round
        self._arrivals.setdefault(key, []).append((event.at_ns, event.peer))

    def _answered(self, event: Event) -> None:
        self.link_bytes[event.peer, "sent"] += event.bytes

    def _summed(self, event: Event) -> None:
        self.rounds += 1
        arrivals = sorted(self._arrivals.pop((event.tensor, event.piece, event.round), ()))
        if len(arrivals) > 1:
            (before, _), (last, rank) = arrivals[-2:]
            self.waited_for_s[rank] += (last - before) / 1e9


_HANDLERS = {
    "step": Digest._step,
    "ready": Digest._begin,
    "done": Digest._done,
    "had": Digest._had,
    "encoded": Digest._encoded,
    "decoded": Digest._decoded,
    "sent": Digest._sent,
    "landed": Digest._landed,
    "credit": Digest._credit,
    "arrived": Digest._arrived,
    "answered": Digest._answered,
    "summed": Digest._summed,
}
