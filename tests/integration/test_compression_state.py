"""The state of codecs survives a restart of the job, bit for bit on workers, grouped or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import state_restart_job

from byteps.testing import cluster


def _run(target: Callable[[str], Any], folder: Path, nproc: list[int] | None) -> list[Any]:
    env = {"BYTEPS_MIN_COMPRESS_BYTES": "0", "BYTEPS_PARTITION_BYTES": "1024"}
    with cluster(
        target, workers=2, servers=1, nproc=nproc, args=(str(folder),), env=env, deadline_s=80
    ) as job:
        return job.wait()


@pytest.mark.parametrize("nproc", [None, [2, 1]], ids=["2 workers", "machines of 2 and 1"])
def test_training_goes_on_bit_for_bit(nproc: list[int] | None, tmp_path: Path) -> None:
    without_a_break = _run(state_restart_job.first, tmp_path, nproc)
    restarted = _run(state_restart_job.second, tmp_path, nproc)
    assert restarted == without_a_break
    assert all(weights == without_a_break[0] for weights in without_a_break)
    if nproc is None:
        assert _run(state_restart_job.root_only, tmp_path, nproc) == [[12, 12], [12, 12]]
