"""The result file of a benchmark: machine, settings, every sample, medians and goals, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from byteps.tools.bench.machine import machine_facts
from byteps.tools.bench.series import Series
from byteps.tools.bench.stats import Verdict

__all__ = ["write"]

SCHEMA = 1


def write(
    path: Path,
    benchmark: str,
    settings: dict[str, Any],
    series: Sequence[Series],
    verdicts: Sequence[Verdict],
    extra: dict[str, Any] | None = None,
) -> None:
    """Write the file in one piece: a reader never sees half of it."""
    document = {
        "schema": SCHEMA,
        "benchmark": benchmark,
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "machine": machine_facts(),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("BYTEPS_", "DMLC_", "PS_")) and "SECRET" not in name
        },
        "settings": settings,
        "series": [
            {
                **asdict(one),
                "summary_s": asdict(one.summary()),
                "algorithm_bytes_per_s": one.algorithm_bytes_per_s(),
            }
            for one in series
            if one.samples_s
        ],
        "goals": [
            {
                "line": verdict.line(),
                "target": verdict.goal.target,
                "actual": verdict.actual,
                "quartiles": [verdict.q1, verdict.q3],
                "reached": verdict.reached,
                "clear": verdict.clear,
            }
            for verdict in verdicts
        ],
        **(extra or {}),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(document, indent=1) + "\n")
    scratch.replace(path)
