"""``DistributedDataParallel`` on two ranks: what ddp_checks.py lists, in two kinds of jobs."""

from __future__ import annotations

import functools

import ddp_checks
import pytest

from byteps.testing import ClusterError
from byteps.testing.checks import outcomes_of, require

JOBS = {"one machine": {"nproc": 2}, "server": {"workers": 2, "servers": 1}}
ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "20", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def rank() -> dict[str, str]:
    """The outcome of each check, as text."""
    import byteps.torch as bps

    bps.init()
    return ddp_checks.check.run(bps.barrier)


@functools.cache
def outcomes(job: str) -> list[dict[str, str]] | ClusterError:
    return outcomes_of(rank, **JOBS[job], env=ENVIRONMENT, deadline_s=110)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", ddp_checks.check)
def test_ddp(job: str, name: str) -> None:
    require(outcomes(job), name)
