"""DistributedOptimizer: several ranks get the parameters of one process, the same bits on all, every time."""

from __future__ import annotations

from typing import Any

import pytest

from byteps.testing import cluster

pytest.importorskip("torch")

from optimizer_numbers_job import worker
from training_job import TOLERANCE

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def run(**topology: Any) -> dict[str, str]:
    """The digests of a job, after a look at its numbers."""
    with cluster(worker, env=ENVIRONMENT, deadline_s=110, **topology) as job:
        results = job.wait()
    digests = []
    for result in results:
        digests.append({name: digest for name, (digest, _) in result.items()})
        distances = {name: distance for name, (_, distance) in result.items()}
        assert max(distances.values()) < TOLERANCE, distances
    assert all(each == digests[0] for each in digests), digests
    return digests[0]


def test_two_ranks_give_the_parameters_of_one_process_and_the_same_bits_every_time() -> None:
    on_one_machine = run(nproc=2)
    assert run(nproc=2) == on_one_machine
    assert run(workers=2, servers=1) == on_one_machine  # another job, another way, the same bits


def test_four_ranks_give_the_parameters_of_one_process() -> None:
    run(nproc=4)
