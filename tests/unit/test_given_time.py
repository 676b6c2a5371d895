"""Worker, aggregator and liveness know no time and no thread but those that they are given (base/runtime.h):
only so can the same objects run in a made time."""

from __future__ import annotations

import re
from pathlib import Path

from looks import ROOT

GIVEN = ("worker", "aggregator", "liveness", "wire", "transport", "sim")
# A number of processors is no thread.
OWN = re.compile(
    r"\b(machine_now_ns|clock_gettime|gettimeofday|std::chrono|start_thread|sleep_for|nanosleep|EpollLoop"
    r"|ThreadCrew|condition_variable|std::thread(?!::hardware_concurrency))\b"
)


def own_time(folder: Path) -> list[str]:
    """A sentence for every place that asks the machine instead of its runtime."""
    return [
        f"{path.name}:{number} may not use {found[0]}: it is given a Runtime"
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".h", ".cc")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := OWN.search(line.split("//")[0]))
    ]


def test_nobody_asks_the_machine_what_time_it_is() -> None:
    found = [text for folder in GIVEN for text in own_time(ROOT / "native" / folder)]
    assert not found, "\n" + "\n".join(found)


def test_it_sees_clocks_and_threads(tmp_path: Path) -> None:
    (tmp_path / "a.cc").write_text(
        "int64_t now = machine_now_ns();\n"
        "std::thread mine;  // bad\n"
        "unsigned n = std::thread::hardware_concurrency();\n"
        "// std::thread in words\n"
    )
    assert own_time(tmp_path) == [
        "a.cc:1 may not use machine_now_ns: it is given a Runtime",
        "a.cc:2 may not use std::thread: it is given a Runtime",
    ]
