"""broadcast_optimizer_state for every optimizer of PyTorch, and broadcast_object."""

from __future__ import annotations

import pytest

from byteps.testing import cluster

pytest.importorskip("torch")

from state_job import worker

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "20", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def test_states_and_objects_of_one_rank_arrive_on_the_other() -> None:
    with cluster(worker, nproc=2, env=ENVIRONMENT, deadline_s=110) as job:
        one, other = job.wait()
    assert one == other > 10
