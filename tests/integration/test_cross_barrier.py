"""``CrossBarrier`` on two ranks: what cross_barrier_checks.py lists, in two kinds of jobs."""

from __future__ import annotations

import functools
from typing import Any

import cross_barrier_checks
import pytest

from byteps import _core
from byteps.testing import ClusterError, cluster
from byteps.testing.checks import outcomes_of, require
from byteps.torch.cross_barrier import CrossBarrier

JOBS = {"one machine": {"nproc": 2}, "server": {"workers": 2, "servers": 1}}
ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "20", "BYTEPS_CONNECT_TIMEOUT_S": "30"}
PARTITION = 1 << 20


def rank() -> dict[str, str]:
    """The outcome of each check, as text."""
    import byteps.torch as bps

    bps.init()
    return cross_barrier_checks.check.run(bps.barrier)


@functools.cache
def outcomes(job: str) -> list[dict[str, str]] | ClusterError:
    return outcomes_of(rank, **JOBS[job], env=ENVIRONMENT, deadline_s=110)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("name", cross_barrier_checks.check)
def test_cross_barrier(job: str, name: str) -> None:
    require(outcomes(job), name)


def first_layer_after_last(elements: int) -> dict[str, Any]:
    import torch
    from torch import nn

    import byteps.torch as bps
    from byteps.torch.optimizer import DistributedOptimizer

    bps.init()

    class Backwards(nn.Module):
        """Its layers were made in the other order than they are used."""

        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(1, elements, bias=False)
            self.first = nn.Linear(PARTITION // 4, 1, bias=False)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.last(self.first(inputs))
            return result

    model = Backwards()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
    optimizer = CrossBarrier(model, optimizer)
    inputs = torch.ones(1, PARTITION // 4)
    waited = []
    for _ in range(2):
        optimizer.synchronize()
        bps.barrier()
        model(inputs).sum().backward()
        first, last = (optimizer._exchange.handles[layer.weight] for layer in (model.first, model.last))
        native = first._native
        first.wait()
        waited.append((native.waited_bytes, last.done()))
        optimizer.step()
    return {"waited": waited}


def test_the_first_layers_gradient_overtakes_the_last_layers() -> None:
    bulk_bytes = 128 << 20
    env = {
        **ENVIRONMENT,
        "BYTEPS_PARTITION_BYTES": str(PARTITION),
        "BYTEPS_SCHEDULING_CREDIT": "1",
        "BYTEPS_SERVER_ENGINE_THREAD": "1",  # one connection and one window for both
        "BYTEPS_ENABLE_IPC": "0",
    }
    with cluster(
        first_layer_after_last, workers=2, servers=1, args=(bulk_bytes // 4,), env=env, deadline_s=100
    ) as job:
        for result in job.wait():
            print(result)
            (behind, _), (ahead, last_was_done) = result["waited"]
            assert behind > bulk_bytes // 2  # before its first pass is over, nobody knows better
            assert not last_was_done
            # At most a window of what left after it was ready, and what the link had already taken.
            assert ahead <= PARTITION + 2 * _core.PIECE_BYTES
