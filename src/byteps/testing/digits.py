"""A small network that learns scikit-learn's digits on all ranks: what compression costs in accuracy.

The data is split over the ranks, the batch of a step is the same whatever their number. Everything random
comes from the seed: two runs with the same seed and settings give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import byteps.torch as bps

__all__ = ["BATCH", "SETTINGS", "Setting", "train"]

BATCH = 64  # of all ranks together
_TEST_SHARE = 5  # one of so many is for the test


@dataclass(frozen=True)
class Setting:
    """How a training is done; ``params`` are its compression_params."""

    params: Mapping[str, Any] | None
    lr: float = 0.1
    momentum: float = 0.9
    epochs: int = 10


# What docs/compression.md recommends. randomk with k = 0.01 sends a coordinate once in a hundred steps, and
# then all that has piled up: it wants no momentum on top, and more steps than there are coordinates to send.
SETTINGS: dict[str, Setting] = {
    "uncompressed": Setting(None),
    "dist-EF-SGDM": Setting(
        {"compressor": "onebit", "scaling": True, "ef": "corrected", "momentum": "nesterov"}
    ),
    "topk": Setting({"compressor": "topk", "k": 0.01, "ef": "vanilla"}, lr=0.2),
    "randomk": Setting(
        {"compressor": "randomk", "k": 0.01, "ef": "vanilla"}, lr=0.5, momentum=0.0, epochs=32
    ),
    "dithering linear": Setting({"compressor": "dithering", "k": 2}),
    "dithering natural": Setting({"compressor": "dithering", "k": 2, "partition": "natural"}),
    "fp16": Setting({"fp16": True}),
    "int8": Setting({"compressor": "int8"}),
    "int4": Setting({"compressor": "int4", "ef": "vanilla"}),
}


def _data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    inputs = torch.from_numpy((digits.data[order] / 16 - 0.3).astype(np.float32))
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    held = len(labels) // _TEST_SHARE
    return inputs[held:], labels[held:], inputs[:held], labels[:held]


def train(setting: Setting, seed: int) -> dict[str, float]:
    """Train once on all ranks; accuracy in percent on data nobody trained on, and bytes that travelled."""
    epochs = setting.epochs
    inputs, labels, test_inputs, test_labels = _data(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    plain = torch.optim.SGD(model.parameters(), lr=setting.lr, momentum=setting.momentum)
    params = None if setting.params is None else {**setting.params, "seed": seed + 1}
    before = bps.counters()
    optimizer = bps.DistributedOptimizer(plain, model.named_parameters(), compression_params=params)
    steps = epochs * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        plain, setting.lr, total_steps=steps, cycle_momentum=False, pct_start=0.15
    )
    rank, size = bps.rank(), bps.size()
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(labels)))
        for first in range(0, len(labels) - BATCH + 1, BATCH):
            mine = order[first + rank : first + BATCH : size]
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(inputs[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            schedule.step()
    optimizer._exchange.remove()
    after = bps.counters()
    with torch.no_grad():
        right = (model(test_inputs).argmax(1) == test_labels).float().mean()
    moved = {key: float(after[key] - before[key]) for key in ("pushed_bytes", "pushed_wire_bytes")}
    return {"accuracy": 100 * float(right), "steps": float(steps), **moved}
