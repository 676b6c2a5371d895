"""Recordings as a trace in the Chrome format, for Perfetto and chrome://tracing. Pure.

A process per member, a row per tensor, a slice per stage: on a worker ``queue``, ``push``, ``wait``, ``pull``
and ``finish`` inside a slice for the whole operation; on a server ``arrive``, ``sum`` and ``answer``. Arrows
lead from a push to its sum and from there to the result. Rows of their own have steps and waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from byteps.observe.recording import Header, Recording
from byteps.observe.ring import Event
from byteps.observe.rounds import ServerRound, WorkerRound, server_rounds, steps, waits, worker_rounds
from byteps.observe.window import chosen

__all__ = ["trace"]

Json = dict[str, Any]

_STEPS_ROW, _WAITS_ROW, _FIRST_TENSOR_ROW = 1, 2, 16


def trace(recordings: Sequence[Recording]) -> Json:
    """One trace of all recordings, on one clock that begins with the first event of interest."""
    members = chosen(recordings)
    start_ns = min((events[0].at_ns for _, events in members if events), default=0)
    wall_ns = next((header.wall_ns for header, _ in members if header.wall_ns), 0)
    out: list[Json] = []
    for number, (header, events) in enumerate(members, 1):
        out += _Process(number, header, start_ns).lines(events)
    metadata = {"clock": "the scheduler's machine", "start_unix_ns": start_ns + wall_ns}
    return {"traceEvents": out, "displayTimeUnit": "ms", "otherData": metadata}


class _Process:
    """The lines of one member."""

    def __init__(self, number: int, header: Header, start_ns: int) -> None:
        self._pid = number
        self._header = header
        self._start_ns = start_ns
        self._rows: dict[int, int] = {}  # of tensors

    def lines(self, events: list[Event]) -> Iterator[Json]:
        """Everything: the names of rows come last, when they are known."""
        yield self._name("process_name", 0, str(self._header))
        yield {
            "ph": "M",
            "pid": self._pid,
            "tid": 0,
            "name": "process_sort_index",
            "args": {"sort_index": self._pid},
        }
        if self._header.role == "server":
            yield from self._server(events)
        else:
            yield from self._worker(events)
        for tensor, row in self._rows.items():
            yield self._name("thread_name", row, self._tensor(tensor))

    def _tensor(self, tensor: int) -> str:
        return self._header.tensors.get(tensor, f"tensor {tensor}")

    def _row(self, tensor: int) -> int:
        return self._rows.setdefault(tensor, _FIRST_TENSOR_ROW + len(self._rows))

    def _name(self, kind: str, row: int, name: str) -> Json:
        return {"ph": "M", "pid": self._pid, "tid": row, "name": kind, "args": {"name": name}}

    def _at(self, ns: int) -> float:
        return round((ns - self._start_ns) / 1e3, 3)  # microseconds, as the format wants them

    def _slice(self, row: int, name: str, begin: int, end: int, args: Json | None = None) -> Json:
        at = self._at(begin)
        line = {"ph": "X", "cat": "comm", "name": name, "pid": self._pid, "tid": row}
        line |= {"ts": at, "dur": round(self._at(max(begin, end)) - at, 3)}
        return line | ({"args": args} if args else {})

    def _arrow(
        self, kind: str, row: int, at_ns: int, round_: tuple[int, int], rank: int, server: int
    ) -> Json:
        line = {
            "ph": kind,
            "cat": "flow",
            "name": "push_pull",
            "pid": self._pid,
            "tid": row,
            "ts": self._at(at_ns),
        }
        line["id"] = f"{round_[0]}.{round_[1]}.{rank}.{server}"
        return line | ({"bp": "e"} if kind == "f" else {})

    # A worker

    def _worker(self, events: list[Event]) -> Iterator[Json]:
        yield self._name("thread_name", _STEPS_ROW, "steps")
        yield self._name("thread_name", _WAITS_ROW, "waits")
        for step in steps(events):
            yield self._slice(_STEPS_ROW, f"step {step.number}", step.begin_ns, step.end_ns)
        free_ns = 0
        for wait in sorted(waits(events), key=lambda w: w.begin_ns):
            begin = max(wait.begin_ns, free_ns)  # several threads may wait at once
            if wait.end_ns > begin:
                yield self._slice(
                    _WAITS_ROW, self._tensor(wait.tensor), begin, wait.end_ns, {"round": wait.round}
                )
                free_ns = wait.end_ns
        for each in worker_rounds(events):
            yield from self._operation(each)
        yield from self._in_flight(events)

    def _operation(self, of: WorkerRound) -> Iterator[Json]:
        if not of.ready_ns or not of.done_ns:
            return  # it began before, or ended after
        row = self._row(of.tensor)
        args = {"round": of.round, "bytes": of.bytes}
        if of.codec_ns:
            args["codec_us"] = of.codec_ns // 1_000
        if of.failed:
            args["failed"] = 1
        yield self._slice(row, "push_pull", of.ready_ns, of.done_ns, args)
        yield from (self._slice(row, name, begin, end) for name, begin, end in of.stages() if end > begin)
        round_ = of.tensor, of.round
        for server, span in of.sent.items():
            yield self._arrow("s", row, span.first_ns, round_, self._header.rank, server)
        for server, span in of.landed.items():
            yield self._arrow("f", row, span.last_ns, round_, self._header.rank, server)

    def _in_flight(self, events: Iterable[Event]) -> Iterator[Json]:
        flying: dict[int, int] = {}
        limit = self._header.credit_bytes
        for event in events:
            if event.stage == "sent":
                flying[event.peer] = flying.get(event.peer, 0) + event.bytes
            elif event.stage == "credit":
                flying[event.peer] = event.bytes
            else:
                continue
            total = flying[event.peer]
            at = {"ph": "C", "pid": self._pid, "ts": self._at(event.at_ns)}
            yield at | {"name": f"in flight to server {event.peer}", "args": {"bytes": total}}
            if limit:
                yield at | {
                    "name": f"credit of server {event.peer}",
                    "args": {"bytes": max(0, limit - total)},
                }

    # A server

    def _server(self, events: list[Event]) -> Iterator[Json]:
        free_ns: dict[int, int] = {}  # by tensor: a rank that is ahead may begin with the next round
        for each in server_rounds(events):
            yield from self._sum(each, free_ns)

    def _sum(self, of: ServerRound, free_ns: dict[int, int]) -> Iterator[Json]:
        if not of.arrived or of.summed is None or not of.answered:
            return
        row = self._row(of.tensor)
        first = max(min(span.first_ns for span in of.arrived.values()), free_ns.get(of.tensor, 0))
        last = max(span.last_ns for span in of.arrived.values())
        summed = of.summed.last_ns
        end = max([summed, *(span.last_ns for span in of.answered.values())])
        free_ns[of.tensor] = end
        args = {"round": of.round, "last rank": of.last_rank, "late_us": of.late_ns // 1_000}
        yield self._slice(row, "round", first, end, args)
        for name, begin, until in (("arrive", first, last), ("sum", last, summed), ("answer", summed, end)):
            if until > begin:
                yield self._slice(row, name, begin, until)
        for rank, span in of.arrived.items():
            at = min(max(span.first_ns, first), end)
            yield self._arrow("t", row, at, (of.tensor, of.round), rank, self._header.rank)
