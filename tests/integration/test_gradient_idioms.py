"""Whatever a script does to gradients between ``backward()`` and ``step()`` gives what one process gives."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import pytest

from byteps.testing import ClusterError, cluster

pytest.importorskip("torch")

import torch
from gradient_idioms import IDIOMS, ONLY
from gradient_ways import ALONE, LOSSY, WAYS, Training, start

JOBS: dict[str, dict[str, Any]] = {"one machine": {"nproc": 2}, "server": {"workers": 2, "servers": 1}}
ENVIRONMENT = {
    "BYTEPS_OP_TIMEOUT_S": "20",
    "BYTEPS_CONNECT_TIMEOUT_S": "30",
    "BYTEPS_MIN_COMPRESS_BYTES": "0",  # so that small gradients are compressed too
}
STEPS = 4
TOLERANCE = 2e-6  # of float32 sums in another order, after STEPS steps, relative to the parameters
LOSSY_TOO = (  # clipping, and everything that makes a gradient travel in other memory
    "clip_by_norm",
    "swap",
    "accumulate",
    "combine_gradients_of_two_losses",
    "all_gradients_in_one_flat_tensor",
    "gradients_that_the_script_keeps",
)
CASES = [(name, way) for name in IDIOMS for way in ONLY.get(name, WAYS)]
CASES += [(name, way) for name in LOSSY_TOO for way in LOSSY]


def trained(name: str, way: str) -> Training:
    training = Training(way, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3))
    for step in range(STEPS):
        IDIOMS[name](training, step)
    training.finish()
    return training


def worker() -> dict[str, Any]:
    """By idiom and way: digest of the parameters and distance from one process, or what was raised."""
    import byteps.torch as bps

    start()
    found: dict[str, Any] = {}
    alone = functools.cache(lambda name: trained(name, ALONE))
    for name, way in CASES:
        bps.barrier()  # ranks enter a case together even when the last one failed on some of them
        try:
            training = trained(name, way)
            found[f"{name} {way}"] = training.digest(), training.distance(alone(name))
        except Exception:
            found[f"{name} {way}"] = traceback.format_exc()
    bps.barrier()
    return found


@functools.cache
def outcomes(job: str) -> list[dict[str, Any]] | ClusterError:
    with cluster(worker, env=ENVIRONMENT, deadline_s=170, **JOBS[job]) as running:
        try:
            return running.wait()
        except ClusterError as error:
            return error


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(("name", "way"), CASES)
def test_idiom(job: str, name: str, way: str) -> None:
    found = outcomes(job)
    if isinstance(found, ClusterError):
        pytest.fail(str(found), pytrace=False)
    results = [each[f"{name} {way}"] for each in found]
    for rank, result in enumerate(results):
        assert not isinstance(result, str), f"rank {rank}: {result}"
    digests = {digest for digest, _ in results}
    assert len(digests) == 1, "the ranks have different parameters"
    if way not in LOSSY:
        assert max(distance for _, distance in results) < TOLERANCE, results
