"""Training with a codec that is stopped in the middle and goes on in another job, from checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import byteps.torch as bps

# randomk: the server keeps no error, so that everything there is to restore is on workers.
PARAMS: dict[str, Any] = {
    "compressor": "randomk",
    "k": 0.2,
    "ef": "corrected",
    "momentum": "nesterov",
    "seed": 5,
}


def _train(model: torch.nn.Module, optimizer: Any, steps: range) -> None:
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = 0.05 / (1 + step // 3)
        rng = np.random.default_rng([step, bps.rank()])
        optimizer.zero_grad()
        model(torch.from_numpy(rng.standard_normal((4, 30)).astype(np.float32))).square().mean().backward()
        optimizer.step()


def _make() -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(2)
    model = torch.nn.Linear(30, 40)
    plain = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    return model, bps.DistributedOptimizer(plain, model.named_parameters(), compression_params=PARAMS)


def first(folder: str) -> list[float]:
    """20 steps; a checkpoint of each rank after 10."""
    bps.init()
    model, optimizer = _make()
    _train(model, optimizer, range(10))
    path = Path(folder) / f"rank{bps.rank()}.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    _train(model, optimizer, range(10, 20))
    return model.weight.detach().reshape(-1).tolist()


def second(folder: str) -> list[float]:
    """The last 10 steps from the checkpoint. Another tensor comes first: then tensors have other numbers."""
    bps.init()
    bps.push_pull(torch.ones(3), name="something else")
    model, optimizer = _make()
    saved = torch.load(Path(folder) / f"rank{bps.rank()}.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    _train(model, optimizer, range(10, 20))
    return model.weight.detach().reshape(-1).tolist()


def root_only(folder: str) -> list[int]:
    """Only rank 0 loads, and the others get what it has: they are at the same step, and go on together."""
    bps.init()
    model, optimizer = _make()
    if bps.rank() == 0:
        saved = torch.load(Path(folder) / "rank0.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    _train(model, optimizer, range(10, 12))
    return sorted(state["steps"] for state in optimizer.state_dict()["byteps"].values())
