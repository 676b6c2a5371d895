"""The demo learns, alone and on two workers, and says what it did."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from byteps.testing import cluster

SCRIPT = Path(__file__).parents[2] / "examples" / "torch" / "train_digits.py"


@pytest.mark.parametrize(("workers", "servers"), [(1, 0), (2, 1)])
def test_the_demo_learns(workers: int, servers: int) -> None:
    args = ("--epochs", "6", "--min-accuracy", "0.9")
    with cluster(SCRIPT, workers=workers, servers=servers, args=args, deadline_s=110) as job:
        job.wait()
        said, *others = (worker.output for worker in job.workers)
    assert len(re.findall(r"^epoch +\d+/6 \[[#.]{20}\] loss", said, re.MULTILINE)) == 6
    assert f"workers          {workers}\n" in said
    moved = re.search(r"bytes moved +([\d,.]+) MB", said)
    assert moved is not None and (float(moved[1].replace(",", "")) > 10) == (workers > 1)
    assert re.search(r"push-pull speed +[\d,.]+ MB/s", said)
    assert others == [""] * (workers - 1)  # one rank speaks
