"""The verdict: parts add up to the step, and the cause that a model was given is the one that is named."""

from __future__ import annotations

import random

import pytest

from byteps import _core
from byteps.observe.recording import Header, Recording
from byteps.observe.verdict import verdict
from byteps.observe.walk import Cause, walked
from byteps.testing.events import packed

MS = 1_000_000
RANKS = 4


def recording(role: str, rank: int, events: list[bytes], host: str = "") -> Recording:
    header = Header(
        role,
        rank,
        host or f"host {role} {rank}",
        1,
        "",
        tensors={7: "w"},
        stages=_core.STAGES,
        threads=[("t", 0, len(events))],
    )
    return Recording(header, [b"".join(events)])


def job(
    steps: int,
    rng: random.Random,
    *,
    compute_ms: dict[int, float] | None = None,
    encode_ms: float = 0.0,
    uplink_ms: dict[int, float] | None = None,
    sum_ms: float = 0.2,
    downlink_ms: float = 1.0,
) -> list[Recording]:
    """A model of ranks that compute, push one piece to one server, and wait for its result."""
    workers: list[list[bytes]] = [[packed("step", 0, round=0)] for _ in range(RANKS)]
    server: list[bytes] = []
    now = 0
    for step in range(1, steps + 1):
        arrived = {}
        ready = {}
        for rank, events in enumerate(workers):
            took = (compute_ms or {}).get(rank, 20.0) + rng.uniform(0, 0.5)
            ready[rank] = at = now + int(took * MS)
            events.append(packed("ready", at, round=step, bytes=1000))
            events.append(packed("needed", at + 1, round=0))
            at += 50_000
            events.append(packed("queued", at, round=step, peer=0))
            if encode_ms:
                at += int(encode_ms * MS)
                events.append(packed("encoded", at, piece=0, round=step, took_ns=int(encode_ms * MS)))
            at += 10_000
            events.append(packed("sent", at, piece=0, round=step, peer=0, bytes=1000))
            arrived[rank] = at + int((uplink_ms or {}).get(rank, 1.0) * MS)
            server.append(packed("arrived", arrived[rank], piece=0, round=step, peer=rank, bytes=1000))
        summed = max(arrived.values()) + int(sum_ms * MS)
        server.append(packed("summed", summed, piece=0, round=step, bytes=1000))
        end = summed + int(downlink_ms * MS)
        for rank, events in enumerate(workers):
            server.append(packed("answered", summed + 1_000, piece=0, round=step, peer=rank, bytes=1000))
            events.append(packed("landed", end, piece=0, round=step, peer=0, bytes=1000))
            events.append(packed("done", end + 5_000, round=step))
            events.append(packed("had", end + 9_000, round=step, took_ns=end + 9_000 - ready[rank] - 1))
            events.append(packed("step", end + 10_000, round=step))
        now = end + 10_000
    return [
        *(recording("worker", rank, events) for rank, events in enumerate(workers)),
        recording("server", 0, server),
    ]


CASES = {
    "computing": ({}, Cause("compute")),
    "a rank that computes longer": ({"compute_ms": {2: 70.0}}, Cause("rank", 2)),
    "a slow link": ({"uplink_ms": {1: 40.0}}, Cause("uplink", 1, 0)),
    "slow links everywhere": ({"uplink_ms": dict.fromkeys(range(RANKS), 30.0)}, Cause("uplink", -1, 0)),
    "a busy server": ({"sum_ms": 25.0}, Cause("server", -1, 0)),
    "a slow codec": ({"encode_ms": 30.0}, Cause("codec", -1, -1)),
    "slow answers": ({"downlink_ms": 30.0}, Cause("downlink", -1, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_it_names_the_cause(name: str, seed: int) -> None:
    given, cause = CASES[name]
    if name == "computing":
        given = {"downlink_ms": 0.1, "uplink_ms": dict.fromkeys(range(RANKS), 0.1)}
    found = verdict(walked(job(100, random.Random(seed), **given)))
    assert found.steps == 100
    assert found.cause == cause, found.text()
    assert found.cause_steps >= 95, found.text()


@pytest.mark.parametrize("name", CASES)
def test_parts_add_up_to_every_step(name: str, seed: int) -> None:
    for each in walked(job(20, random.Random(seed), **CASES[name][0])):
        assert sum(each.parts.values()) == each.length_ns


def test_what_a_step_takes_without_the_cause(seed: int) -> None:
    slow = verdict(walked(job(50, random.Random(seed), compute_ms={3: 60.0})))
    fast = verdict(walked(job(50, random.Random(seed))))
    assert slow.without_ms == pytest.approx(fast.step_ms, abs=1.0)
    assert "rank 3 was late in 50 of 50 steps" in slow.text()
    assert "machine of rank 3" in slow.text()
    assert sum(slow.parts_ms.values()) == pytest.approx(slow.mean_ms)


def test_ranks_of_one_machine_wait_for_each_other() -> None:
    events: list[list[bytes]] = []
    for _rank, late in enumerate((0, 8)):
        ready = (10 + late) * MS
        events.append(
            [
                packed("step", 0, round=1),
                packed("ready", ready, round=0, bytes=8),
                packed("done", 19 * MS, round=0),
                packed("had", 19 * MS, round=0, took_ns=19 * MS - ready),
                packed("step", 20 * MS, round=2),
            ]
        )
    first, second = walked([recording("worker", rank, each, "one") for rank, each in enumerate(events)])
    assert first.parts == {Cause("compute", 0): 11 * MS, Cause("rank", 1): 8 * MS, Cause("local", 0): MS}
    assert second.parts == {Cause("compute", 1): 19 * MS, Cause("local", 1): MS}


def test_waits_of_several_threads_count_once() -> None:
    events = [
        packed("step", 0, round=1),
        packed("had", 6 * MS, round=0, took_ns=4 * MS),
        packed("had", 8 * MS, tensor=9, round=0, took_ns=5 * MS),
        packed("step", 10 * MS, round=2),
    ]
    (step,) = walked([recording("worker", 0, events)])
    assert sum(step.parts.values()) == 10 * MS
    assert step.parts[Cause("compute", 0)] == 4 * MS


def test_without_a_step_there_is_no_verdict() -> None:
    assert verdict([]).text() == "no whole step was seen"
