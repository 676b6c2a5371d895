"""The demo learns, alone and on two workers, and says what it did."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from launch_job import bpslaunch, run

from byteps.testing import cluster

SCRIPT = Path(__file__).parents[2] / "examples" / "torch" / "train_digits.py"


@pytest.mark.parametrize(
    ("workers", "servers", "more"), [(1, 0, ()), (2, 1, ()), (2, 1, ("--compress", "onebit"))]
)
def test_the_demo_learns(workers: int, servers: int, more: tuple[str, ...]) -> None:
    args = ("--epochs", "6", "--min-accuracy", "0.9", *more)
    with cluster(SCRIPT, workers=workers, servers=servers, args=args, deadline_s=110) as job:
        job.wait()
        said, *others = (worker.output for worker in job.workers)
    assert len(re.findall(r"^epoch +\d+/6 \[[#.]{20}\] loss", said, re.MULTILINE)) == 6
    assert f"workers          {workers}\n" in said
    moved = re.search(r"bytes moved +([\d,.]+) MB", said)
    assert moved is not None and (float(moved[1].replace(",", "")) > 10) == (workers > 1)
    assert re.search(r"push-pull speed +[\d,.]+ MB/s", said)
    assert others == [""] * (workers - 1)  # one rank speaks
    who = "one process" if workers == 1 else "2 workers as one"
    assert re.search(rf"^it works: {who} learned to read 9\d\.\d% of digits .* s$", said.splitlines()[-1])


def test_without_a_server_bytes_in_shared_memory_are_counted() -> None:
    """As `make demo SERVERLESS=1 COMPRESS=fp16` starts it."""
    args = (
        "-n",
        "2",
        sys.executable,
        str(SCRIPT),
        "--epochs",
        "2",
        "--min-accuracy",
        "0",
        "--compress",
        "fp16",
    )
    job = run(bpslaunch(*args))
    assert job.process.returncode == 0, job.said
    said = "\n".join(job.lines("worker 0"))
    moved, speed = (re.search(rf"{what} +([\d,.]+) M", said) for what in ("bytes moved", "push-pull speed"))
    assert moved is not None and float(moved[1].replace(",", "")) > 10, said
    assert speed is not None and float(speed[1].replace(",", "")) > 0, said
