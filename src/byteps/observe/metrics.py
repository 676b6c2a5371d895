"""What a process tells Prometheus: names, units and labels in one place. Needs prometheus_client.

Counters, not rates; seconds and bytes. Every sample says whose it is (``role``, ``rank``), so that those of a
process alone and those that the scheduler gathers from the whole job are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from byteps.observe.digest import BUCKETS_S, Digest

__all__ = ["MAX_SAMPLES", "METRICS", "Sample", "of_digest", "of_server", "of_worker", "text"]

MAX_SAMPLES = 2_048  # of one process: 65,536 ranks would be too much for one report


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One number. ``labels`` are values, in the order of the names that METRICS has for it."""

    name: Annotated[str, Meta(max_length=80)]
    labels: Annotated[tuple[Annotated[str, Meta(max_length=80)], ...], Meta(max_length=4)]
    value: float


class Metric(msgspec.Struct, frozen=True):
    kind: str  # counter, gauge or histogram
    help: str
    labels: tuple[str, ...] = ()


# Without the "_total" that counters get.
METRICS: dict[str, Metric] = {
    "byteps_step_seconds": Metric("histogram", "length of a training step"),
    "byteps_operation_seconds": Metric("histogram", "from a tensor that is ready to its result"),
    "byteps_operations": Metric("counter", "push_pulls and broadcasts that have ended"),
    "byteps_operations_failed": Metric("counter", "of those, the ones that failed"),
    "byteps_exposed_wait_seconds": Metric("counter", "that threads waited for results"),
    "byteps_waited_for_seconds": Metric(
        "counter", "that rounds waited for the rank that came last", ("rank_waited_for",)
    ),
    "byteps_rounds": Metric("counter", "rounds of keys that a server has summed"),
    "byteps_wire_bytes": Metric("counter", "payloads that travelled", ("peer", "direction")),
    "byteps_element_bytes": Metric("counter", "elements, before compression", ("direction",)),
    "byteps_codec_seconds": Metric("counter", "that threads compressed and decompressed", ("side",)),
    "byteps_in_flight_bytes": Metric("gauge", "sent and not yet known to be done with", ("peer",)),
    "byteps_buffer_bytes": Metric("gauge", "of a server's pooled buffers"),
    "byteps_lost_events": Metric("counter", "overwritten in the rings before they were read"),
    "byteps_members": Metric("gauge", "of the job", ("member", "state")),
    "byteps_epoch": Metric("gauge", "of the job"),
    "byteps_report_age_seconds": Metric("gauge", "since a member has told its numbers"),
}


def of_digest(digest: Digest, role: str) -> list[Sample]:
    """What the rings say."""
    peer = "worker" if role == "server" else "server"
    found = [
        *_histogram("byteps_step_seconds", digest.steps.counts, digest.steps.total_s),
        *_histogram("byteps_operation_seconds", digest.operations.counts, digest.operations.total_s),
        Sample("byteps_operations_failed", (), digest.failed),
        Sample("byteps_exposed_wait_seconds", (), digest.exposed_wait_s),
        Sample("byteps_lost_events", (), digest.lost_events),
    ]
    if role == "server":
        found = [Sample("byteps_rounds", (), digest.rounds)]
    found += [Sample("byteps_waited_for_seconds", (str(rank),), s) for rank, s in digest.waited_for_s.items()]
    found += [
        Sample("byteps_wire_bytes", (f"{peer} {number}", way), count)
        for (number, way), count in digest.link_bytes.items()
    ]
    found += [Sample("byteps_codec_seconds", (side,), s) for side, s in digest.codec_s.items()]
    found += [
        Sample("byteps_in_flight_bytes", (f"server {number}",), count)
        for number, count in digest.in_flight_bytes.items()
    ]
    return found[:MAX_SAMPLES]


def of_worker(counters: Mapping[str, int]) -> list[Sample]:
    """What the core of a worker counts by itself."""
    return [
        Sample("byteps_operations", (), counters["operations"]),
        Sample("byteps_element_bytes", ("push",), counters["pushed_bytes"]),
        Sample("byteps_element_bytes", ("pull",), counters["pulled_bytes"]),
        Sample("byteps_element_bytes", ("local",), counters["local_bytes"]),
    ]


def of_server(counters: Mapping[str, int]) -> list[Sample]:
    """What the core of a server counts by itself."""
    return [
        Sample("byteps_element_bytes", ("push",), counters["pushed_bytes"]),
        Sample("byteps_element_bytes", ("pull",), counters["pulled_bytes"]),
        Sample("byteps_buffer_bytes", (), counters["buffer_bytes"]),
    ]


def _histogram(name: str, counts: list[int], total_s: float) -> list[Sample]:
    return [
        *(Sample(name, (str(place),), count) for place, count in enumerate(counts)),
        Sample(name, ("sum",), total_s),
    ]


def text(members: Iterable[tuple[str, int, Iterable[Sample]]]) -> bytes:
    """All samples of all members (role, rank, samples) as Prometheus reads them.

    What METRICS does not know, or has other labels, is left out: a member may be of another version.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(members)))
    written: bytes = generate_latest(registry)
    return written


class _Collected:
    def __init__(self, members: list[tuple[str, int, Iterable[Sample]]]) -> None:
        self._members = members

    def collect(self) -> Iterable[Any]:
        from prometheus_client import core

        families: dict[str, Any] = {}
        kinds = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for name, metric in METRICS.items():
            families[name] = kinds[metric.kind](name, metric.help, labels=["role", "rank", *metric.labels])
        for role, rank, samples in self._members:
            histograms: dict[str, dict[str, float]] = {}
            for sample in samples:
                known = METRICS.get(sample.name)
                if known is None:
                    continue
                if known.kind == "histogram":
                    if len(sample.labels) == 1:
                        histograms.setdefault(sample.name, {})[sample.labels[0]] = sample.value
                elif len(sample.labels) == len(known.labels):
                    families[sample.name].add_metric([role, str(rank), *sample.labels], sample.value)
            for name, values in histograms.items():
                families[name].add_metric([role, str(rank)], _cumulated(values), values.get("sum", 0.0))
        return [family for family in families.values() if family.samples]


def _cumulated(values: Mapping[str, float]) -> list[tuple[str, float]]:
    total, found = 0.0, []
    for place, bound in enumerate((*map(str, BUCKETS_S), "+Inf")):
        total += values.get(str(place), 0.0)
        found.append((bound, total))
    return found
