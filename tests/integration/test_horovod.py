"""Horovod's names on three ranks: what horovod_checks.py lists, in three kinds of jobs."""

from __future__ import annotations

import functools

import horovod_checks
import pytest

from byteps.testing import ClusterError
from byteps.testing.checks import outcomes_of, require

JOBS: dict[str, dict[str, object]] = {
    "one machine": {"nproc": 3},
    "servers": {"workers": 3, "servers": 2},
    "ranks that share a machine": {"workers": 2, "servers": 1, "nproc": (2, 1)},
}
ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "20", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def rank() -> dict[str, str]:
    """The outcome of each check, as text."""
    import byteps.torch as bps

    bps.init()
    return horovod_checks.check.run(bps.barrier)


@functools.cache
def outcomes(job: str) -> list[dict[str, str]] | ClusterError:
    return outcomes_of(rank, **JOBS[job], env=ENVIRONMENT, deadline_s=110)  # type: ignore[arg-type]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", horovod_checks.check)
def test_horovod(job: str, name: str) -> None:
    require(outcomes(job), name)
