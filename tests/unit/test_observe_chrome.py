"""Recordings become traces: rows, slices, arrows and counters, of the steps that were asked for."""

from __future__ import annotations

from msgspec.structs import replace

from byteps import _core
from byteps.observe import chrome
from byteps.observe.recording import Header, Recording
from byteps.observe.summary import summary
from byteps.testing.chrome_format import check
from byteps.testing.events import packed

NAMES = {7: "Gradient.w", 8: "Gradient.b"}
MS = 1_000_000


def recording(role: str, rank: int, events: list[bytes], **fields: int) -> Recording:
    header = Header(
        role, rank, "h", 1, "", tensors=NAMES, stages=_core.STAGES, threads=[("t", 0, len(events))]
    )
    return Recording(replace(header, **fields), [b"".join(events)])


def operation(at: int, round_: int, piece_ms: int = 2) -> list[bytes]:
    """A worker's events: ready at ``at`` ms, sent 1 later, landed from 5 on, done at 9."""
    at *= MS
    return [
        packed("ready", at, round=round_, bytes=8192),
        packed("queued", at + MS // 2, round=round_, peer=0),
        packed("sent", at + MS, piece=0, round=round_, peer=0, bytes=4096),
        packed("sent", at + piece_ms * MS, piece=1, round=round_, peer=0, bytes=4096),
        packed("credit", at + 4 * MS, tensor=0, peer=0, bytes=4096),
        packed("landed", at + 5 * MS, piece=0, round=round_, peer=0, bytes=4096),
        packed("landed", at + 8 * MS, piece=1, round=round_, peer=0, bytes=4096),
        packed("done", at + 9 * MS, round=round_),
        packed("had", at + 9 * MS, round=round_, took_ns=3 * MS),
    ]


def sums(at: int, round_: int) -> list[bytes]:
    """The server's events of the same round; rank 1 comes 1 ms after rank 0."""
    at *= MS
    lines = []
    for piece in (0, 1):
        lines += [
            packed("arrived", at + (2 + piece) * MS, piece=piece, round=round_, peer=0, bytes=4096),
            packed("arrived", at + (3 + piece) * MS, piece=piece, round=round_, peer=1, bytes=4096),
            packed("summed", at + (3 + piece) * MS + 9_000, piece=piece, round=round_, bytes=4096),
            packed("answered", at + (3 + piece) * MS + 20_000, piece=piece, round=round_, peer=0, bytes=4096),
            packed("answered", at + (3 + piece) * MS + 30_000, piece=piece, round=round_, peer=1, bytes=4096),
        ]
    return lines


def job() -> list[Recording]:
    server = recording("server", 0, [*sums(100, 0), *sums(200, 1), *sums(300, 2)])
    workers = []
    for rank in (1, 0):
        events = [packed("step", 50 * MS, round=1)]
        for index, at in enumerate((100, 200, 300)):
            events += operation(at, index)
            events.append(packed("step", (at + 10) * MS, round=index + 2))
        workers.append(recording("worker", rank, events, credit_bytes=16384))
    return [server, *workers]


def test_rows_slices_and_arrows_of_a_job() -> None:
    phases = check(chrome.trace(job()))
    names = {line["args"]["name"] for line in phases["M"] if line["name"] == "process_name"}
    assert names == {"worker 0 (h)", "worker 1 (h)", "server 0 (h)"}
    rows = {line["args"]["name"] for line in phases["M"] if line["name"] == "thread_name"}
    assert rows == {"steps", "waits", "Gradient.w"}
    worker = [line for line in phases["X"] if line["pid"] == 1]
    by_name = {name: sum(line["name"] == name for line in worker) for name in ("push_pull", "queue", "push")}
    assert by_name == {"push_pull": 3, "queue": 3, "push": 3}
    first = {line["name"]: line["dur"] for line in reversed(worker)}
    assert (first["queue"], first["push"], first["wait"], first["pull"]) == (1000, 1000, 3000, 3000)
    assert [line["name"] for line in worker if line["name"].startswith("step")] == [
        "step 2",
        "step 3",
        "step 4",
    ]
    assert len(phases["s"]) == len(phases["t"]) == len(phases["f"]) == 6
    late = [line["args"] for line in phases["X"] if line["name"] == "round"]
    assert {(each["last rank"], each["late_us"]) for each in late} == {(1, 1000)}


def test_counters_say_what_is_in_flight() -> None:
    phases = check(chrome.trace(job()))
    flying = [line["args"]["bytes"] for line in phases["C"] if line["name"] == "in flight to server 0"]
    assert flying[:3] == [4096, 8192, 4096]
    credit = [line["args"]["bytes"] for line in phases["C"] if line["name"] == "credit of server 0"]
    assert credit[:3] == [16384 - 4096, 16384 - 8192, 16384 - 4096]


def test_only_the_steps_that_were_asked_for() -> None:
    server, *workers = job()
    cut = [Recording(replace(each.header, first_step=3, last_step=3), each.packed) for each in workers]
    phases = check(chrome.trace([server, *cut]))
    rounds = {line["args"]["round"] for line in phases["X"] if line["name"] in ("push_pull", "round")}
    assert rounds == {1}
    found = summary([server, *cut])
    assert found.steps == 2
    assert found.step_ms == 100.0
    assert found.last == {1: 1}


def test_the_summary_says_where_time_went() -> None:
    found = summary(job())
    assert found.steps == 6
    assert found.last == {1: 3}
    assert found.late_ms == {1: 1.0}
    (tensor,) = found.tensors
    assert (tensor.name, tensor.rounds, tensor.total_ms) == ("Gradient.w", 6, 9.0)
    assert tensor.stage_ms == {"queue": 1.0, "push": 1.0, "wait": 3.0, "pull": 3.0, "finish": 1.0}
    assert round(found.exposed_ms, 6) == 3.0
    assert round(found.communicating_ms, 6) == 9.0
    assert round(found.hidden, 6) == round(1 - 3 / 9, 6)


def test_an_operation_that_did_not_end_is_left_out() -> None:
    events = [packed("ready", MS), packed("sent", 2 * MS, piece=0, peer=0, bytes=9)]
    phases = check(chrome.trace([recording("worker", 0, events)]))
    assert not phases["X"]
