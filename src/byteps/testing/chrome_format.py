"""What a trace in the Chrome format must be for Perfetto to show it, checked line by line.

The rules are those of the format's description: known phases with their fields, times in microseconds that
are not negative, complete slices of a row that lie inside each other or apart, arrows whose ends lie on
slices and go forward in time, counters with numbers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Line = dict[str, Any]


def check(trace: dict[str, Any]) -> dict[str, list[Line]]:
    """Assert all of it, and return the lines by phase."""
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    phases: dict[str, list[Line]] = defaultdict(list)
    for line in trace["traceEvents"]:
        assert line["ph"] in "XMCstf", line
        assert isinstance(line["pid"], int), line
        assert isinstance(line["name"], str) and line["name"], line
        if line["ph"] != "M":
            assert isinstance(line["ts"], float) and line["ts"] >= 0, line
        phases[line["ph"]].append(line)
    rows = _rows(phases["X"])
    for row in rows.values():
        _check_nesting(row)
    _check_arrows(phases, rows)
    for line in phases["C"]:
        assert line["args"] and all(isinstance(each, int) for each in line["args"].values()), line
    for line in phases["M"]:
        assert line["name"] in ("process_name", "thread_name", "process_sort_index"), line
    return phases


def _rows(slices: list[Line]) -> dict[tuple[int, int], list[Line]]:
    rows: dict[tuple[int, int], list[Line]] = defaultdict(list)
    for line in slices:
        assert line["dur"] >= 0, line
        rows[line["pid"], line["tid"]].append(line)
    return rows


def _check_nesting(row: list[Line]) -> None:
    stack: list[Line] = []
    for line in sorted(row, key=lambda each: (each["ts"], -each["dur"])):
        while stack and line["ts"] >= _end(stack[-1]) - 1e-3:
            stack.pop()
        assert not stack or _end(line) <= _end(stack[-1]) + 2e-3, (stack[-1], line)
        stack.append(line)


def _end(line: Line) -> float:
    return float(line["ts"] + line["dur"])


def _check_arrows(phases: dict[str, list[Line]], rows: dict[tuple[int, int], list[Line]]) -> None:
    arrows: dict[str, list[Line]] = defaultdict(list)
    for phase in "stf":
        for line in phases[phase]:
            arrows[line["id"]].append(line)
            inside = rows[line["pid"], line["tid"]]
            assert any(each["ts"] - 2e-3 <= line["ts"] <= _end(each) + 2e-3 for each in inside), line
    for lines in arrows.values():
        ordered = sorted(lines, key=lambda each: "stf".index(each["ph"]))
        times = [each["ts"] for each in ordered]
        assert times == sorted(times), ordered
