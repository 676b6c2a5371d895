"""Numbers for Prometheus: totals of events, and how they are written."""

from __future__ import annotations

import random

from prometheus_client.parser import text_string_to_metric_families

from byteps.observe import metrics
from byteps.observe.digest import Digest
from byteps.observe.metrics import MAX_SAMPLES, METRICS, Sample
from byteps.observe.ring import unpacked
from byteps.testing.events import packed

MS = 1_000_000


def digest(*events: bytes) -> Digest:
    found = Digest()
    found.take(unpacked(b"".join(events)))
    return found


def read(written: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by its name and labels, as Prometheus's own parser reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(written.decode())
        for sample in family.samples
    }


def test_totals_of_a_worker() -> None:
    found = digest(
        packed("step", 1 * MS, round=1),
        packed("ready", 2 * MS, round=4),
        packed("sent", 3 * MS, piece=0, round=4, peer=1, bytes=100),
        packed("credit", 4 * MS, peer=1, bytes=40),
        packed("landed", 5 * MS, piece=0, round=4, peer=1, bytes=60),
        packed("done", 6 * MS, round=4),
        packed("had", 6 * MS, round=4, took_ns=2 * MS),
        packed("encoded", 6 * MS, piece=0, took_ns=MS),
        packed("step", 51 * MS, round=2),
        packed("done", 52 * MS, round=5, note=1),  # began before the ring was read
    )
    assert found.steps.total_s == 0.05 and sum(found.steps.counts) == 1
    assert found.operations.total_s == 0.004
    assert (found.exposed_wait_s, found.codec_s["encode"], found.failed) == (0.002, 0.001, 1)
    assert found.link_bytes == {(1, "sent"): 100, (1, "received"): 60}
    assert found.in_flight_bytes == {1: 40}


def test_who_is_waited_for() -> None:
    found = digest(
        packed("arrived", 1 * MS, piece=0, peer=2, bytes=9),
        packed("arrived", 3 * MS, piece=0, peer=0, bytes=9),
        packed("arrived", 10 * MS, piece=0, peer=1, bytes=9),
        packed("summed", 11 * MS, piece=0, bytes=9),
        packed("arrived", 20 * MS, piece=1, peer=0, bytes=9),  # its round goes on
    )
    assert found.waited_for_s == {1: 0.007}
    assert found.rounds == 1


def test_rounds_that_never_end_are_forgotten() -> None:
    found = Digest()
    for number in range(70_000):
        found.take(unpacked(packed("arrived", number, piece=number, peer=0)))
    assert len(found._arrivals) <= 65_536


def test_prometheus_reads_what_is_written() -> None:
    worker = metrics.of_digest(
        digest(packed("step", MS, round=1), packed("step", 41 * MS, round=2)), "worker"
    )
    server = metrics.of_digest(
        digest(
            packed("arrived", 1 * MS, piece=0, peer=0, bytes=9),
            packed("arrived", 5 * MS, piece=0, peer=3, bytes=9),
            packed("summed", 6 * MS, piece=0, bytes=9),
        ),
        "server",
    )
    found = read(metrics.text([("worker", 7, worker), ("server", 1, server)]))
    mine = ("rank", "7"), ("role", "worker")
    assert found["byteps_step_seconds_count", mine] == 1
    assert found["byteps_step_seconds_sum", mine] == 0.04
    assert found["byteps_step_seconds_bucket", (("le", "0.03"), *mine)] == 0
    assert found["byteps_step_seconds_bucket", (("le", "0.1"), *mine)] == 1
    waited = ("rank", "1"), ("rank_waited_for", "3"), ("role", "server")
    assert found["byteps_waited_for_seconds_total", waited] == 0.004
    wire = ("direction", "received"), ("peer", "worker 3"), ("rank", "1"), ("role", "server")
    assert found["byteps_wire_bytes_total", wire] == 9


def test_what_a_member_makes_up_is_left_out_or_quoted() -> None:
    samples = [
        Sample("rm_rf", (), 1.0),
        Sample("byteps_epoch", ("too", "many"), 1.0),
        Sample("byteps_wire_bytes", ('a"} 1\nevil{x="', "sent"), 2.0),
        Sample("byteps_step_seconds", ("nonsense",), 3.0),
    ]
    found = read(metrics.text([("worker", 0, samples)]))
    assert {name for name, _ in found} <= {
        "byteps_wire_bytes_total",
        "byteps_step_seconds_bucket",
        "byteps_step_seconds_count",
        "byteps_step_seconds_sum",
    }
    assert ("peer", 'a"} 1\nevil{x="') in next(labels for name, labels in found if "wire" in name)


def test_a_report_is_bounded(seed: int) -> None:
    rng = random.Random(seed)
    found = Digest()
    for number in range(5_000):
        found.take(unpacked(packed("sent", number, piece=0, peer=rng.randrange(65_000), bytes=1)))
    assert len(metrics.of_digest(found, "worker")) == MAX_SAMPLES


def test_every_metric_has_a_unit_and_words() -> None:
    for name, metric in METRICS.items():
        assert name.startswith("byteps_") and metric.help
        assert metric.kind in ("counter", "gauge", "histogram")
        assert not name.endswith("_total")
