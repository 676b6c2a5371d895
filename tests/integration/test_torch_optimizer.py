"""DistributedOptimizer on two ranks of a machine, and on two machines with a server between them."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from byteps.testing import ClusterError
from byteps.testing.checks import outcomes_of

pytest.importorskip("torch")

from optimizer_behaviour_job import check as checks
from optimizer_behaviour_job import worker

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "20", "BYTEPS_CONNECT_TIMEOUT_S": "30"}
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "one machine": {"nproc": 2, "args": (True,)},
    "with a server": {"workers": 2, "servers": 1, "args": (False,)},
}


@functools.cache
def outcomes(topology: str) -> list[dict[str, str]] | ClusterError:
    return outcomes_of(worker, env=ENVIRONMENT, deadline_s=110, **TOPOLOGIES[topology])


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("check", checks)
def test_optimizer(topology: str, check: str) -> None:
    found = outcomes(topology)
    if isinstance(found, ClusterError):
        pytest.fail(str(found), pytrace=False)
    for rank, outcome in enumerate(found):
        assert outcome.get(check, "ok") == "ok", f"rank {rank}: {outcome[check]}"
