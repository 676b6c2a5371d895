"""``DistributedDataParallel`` on two ranks: what ddp_checks.py lists, in two kinds of jobs."""

from __future__ import annotations

import functools
import traceback

import ddp_checks
import pytest

from byteps.testing import ClusterError, cluster

JOBS = {"one machine": {"nproc": 2}, "server": {"workers": 2, "servers": 1}}
ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "20", "BYTEPS_CONNECT_TIMEOUT_S": "30"}
OK = "ok"


def rank() -> dict[str, str]:
    """The outcome of each check, as text."""
    import byteps.torch as bps

    bps.init()
    outcomes = {}
    for name, run in ddp_checks.CHECKS.items():
        bps.barrier()  # ranks enter a check together even when the last one failed on some of them
        try:
            run()
            outcomes[name] = OK
        except Exception:
            outcomes[name] = traceback.format_exc()
    return outcomes


@functools.cache
def outcomes(job: str) -> list[dict[str, str]] | ClusterError:
    with cluster(rank, **JOBS[job], env=ENVIRONMENT, deadline_s=110) as running:
        try:
            return running.wait()
        except ClusterError as error:
            return error


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", ddp_checks.CHECKS)
def test_ddp(job: str, name: str) -> None:
    found = outcomes(job)
    if isinstance(found, ClusterError):
        pytest.fail(str(found), pytrace=False)
    for number, outcome in enumerate(found):
        assert outcome[name] == OK, f"rank {number}: {outcome[name]}"
