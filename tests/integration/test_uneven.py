"""Uneven data on three ranks: what uneven_checks.py lists, in three kinds of jobs."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import uneven_checks

from byteps.testing import ClusterError, cluster
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
    return uneven_checks.check.run(bps.barrier)


@functools.cache
def outcomes(job: str) -> list[dict[str, str]] | ClusterError:
    return outcomes_of(rank, **JOBS[job], env=ENVIRONMENT, deadline_s=110)  # type: ignore[arg-type]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", uneven_checks.check)
def test_uneven(job: str, name: str) -> None:
    require(outcomes(job), name)


SCRIPT = Path(__file__).with_name("uneven_scripts.py")
SCRIPT_JOBS: dict[str, dict[str, int]] = {"one machine": {"nproc": 2}, "server": {"workers": 2, "servers": 1}}


@pytest.mark.parametrize("job", SCRIPT_JOBS)
@pytest.mark.parametrize("way", ["context", "join"])
def test_a_script_with_uneven_data(job: str, way: str) -> None:
    env = {**ENVIRONMENT, "BYTEPS_JOIN": str(int(way == "join"))}
    with cluster(SCRIPT, **SCRIPT_JOBS[job], args=[way], env=env, deadline_s=60) as started:
        started.wait()
    for rank, worker in enumerate(started.workers):
        assert f"rank {rank} is done" in worker.output
        assert way == "context" or "rank 1 was the last" in worker.output


@pytest.mark.parametrize("job", SCRIPT_JOBS)
def test_without_it_the_error_says_what_happened(job: str) -> None:
    """Rank 0 goes on to its last push_pull there, which rank 1 does not share: so it leaves before that."""
    text = SCRIPT.read_text().replace("total = ", "if bps.rank() == 0: sys.exit()\ntotal = ")
    with cluster(text, **SCRIPT_JOBS[job], args=["neither"], env=ENVIRONMENT, deadline_s=60) as started:
        started.wait(check=False)
    said = started.workers[1].output
    assert "rank 0 finished after 10 steps, rank 1 wants an 11th: uneven data" in said, said
    assert "join_context()" in said and started.workers[1].exit_code == 1
