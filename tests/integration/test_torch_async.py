"""Asynchronous training (BYTEPS_ENABLE_ASYNC=1) of a network, beside synchronous training."""

from __future__ import annotations

from typing import Any

import pytest

from byteps.testing import cluster

pytest.importorskip("torch")
pytest.importorskip("sklearn")

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}
ASYNC = {**ENVIRONMENT, "BYTEPS_ENABLE_ASYNC": "1"}
SEED, EPOCHS, BATCH = 7, 8, 32


def base_weights() -> dict[str, Any]:
    """Steps of known size: what the servers hold is the root's weights and everybody's steps."""
    import torch

    import byteps.torch as bps

    bps.init()
    weight = torch.nn.Parameter(torch.full((3, 1000), float(bps.rank())))  # differs, and is not broadcast
    frozen = torch.nn.Parameter(torch.full((2,), float(bps.rank())), requires_grad=False)
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD([weight, frozen], lr=1.0), [("weight", weight), ("frozen", frozen)]
    )

    def steps(count: int) -> float:
        for _ in range(count):
            optimizer.zero_grad()
            (weight * -(4.0 ** bps.rank())).sum().backward()
            optimizer.step()  # adds 1 on rank 0 and 4 on rank 1
        bps.barrier()
        optimizer.zero_grad()
        optimizer.step()  # changes nothing and brings the weights
        assert bool((weight == weight[0, 0]).all())
        bps.barrier()
        return float(weight[0, 0])

    seen = [steps(3), steps(2)]
    with torch.no_grad():  # as after a checkpoint was loaded on rank 1
        weight.fill_(100.0 if bps.rank() == 1 else -1.0)
    bps.broadcast_parameters({"weight": weight}, root_rank=1)
    seen.append(steps(1))
    added = torch.nn.Parameter(torch.full((2,), 5.0 + bps.rank()))
    optimizer.add_param_group({"params": [added]})
    steps(1)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    try:
        bps.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=bps.Compression.fp16)
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    bps.barrier()
    return {"seen": seen, "frozen": frozen.tolist(), "added": added.tolist(), "refusal": refusal}


def test_servers_hold_the_weights_of_the_root_and_every_step() -> None:
    with cluster(base_weights, nproc=2, env=ASYNC) as job:
        for result in job.wait():
            assert result["seen"] == [15.0, 25.0, 105.0]
            assert result["frozen"] == [0.0, 0.0] and result["added"] == [5.0, 5.0]
            assert "BYTEPS_ENABLE_ASYNC" in result["refusal"]


def digits() -> float:
    """Train on this rank's half of the digits; the accuracy on images that nobody trained on."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    import byteps.torch as bps

    bps.init()
    torch.set_num_threads(1)
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(SEED))
    images = torch.tensor(data.images, dtype=torch.float32).flatten(1)[order] / 16 - 0.5
    labels = torch.tensor(data.target)[order]
    torch.manual_seed(SEED + bps.rank())
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    mine = torch.arange(360 + bps.rank(), len(labels), bps.size())
    for _ in range(EPOCHS):
        for chosen in mine[torch.randperm(len(mine))].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
    bps.barrier()  # everybody's last step is in
    optimizer.zero_grad()
    optimizer.step()
    return float((model(images[:360]).argmax(1) == labels[:360]).float().mean())


def test_it_learns_as_well_as_synchronous_training() -> None:
    print(f"seed {SEED}")
    accuracy = {}
    for name, environment in {"synchronous": ENVIRONMENT, "asynchronous": ASYNC}.items():
        with cluster(digits, nproc=2, env=environment) as job:
            one, other = job.wait()
        assert one == other  # the same weights
        accuracy[name] = one
    assert accuracy["synchronous"] > 0.9, accuracy
    assert accuracy["asynchronous"] > accuracy["synchronous"] - 0.02, accuracy
