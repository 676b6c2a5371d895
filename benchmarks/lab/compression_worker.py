"""A worker of ``compression.py``: trains a small convolutional network on scikit-learn's digits when told.

The images are dealt over the workers; the batch of a step is the same whatever their number. Everything
random comes from the seed. Only steps are timed, not the test at the end.
"""

from __future__ import annotations

import gc
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import byteps.torch as bps
from byteps.tools.bench.member import Message, serve

BATCH = 64  # of all workers together
TEST_SHARE = 5  # one of so many is for the test
HIDDEN = 512


def network() -> nn.Sequential:
    """0.55 million parameters, most of them in the first dense layer: 2.2 MB of gradients."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, 10),
    )


def data(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels for training, then for the test; the same split on every worker."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = torch.from_numpy((digits.images[order] / 16 - 0.3).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(digits.target[order].astype(np.int64))
    held = len(labels) // TEST_SHARE
    return images[held:], labels[held:], images[:held], labels[:held]


def setup(request: Message) -> Message:
    torch.set_num_threads(1)
    bps.init()
    return {}


def train(request: Message) -> Message:
    """Train once as the request says; times, accuracy in percent, bytes before and after coding."""
    seed, epochs = request["seed"], request["epochs"]
    images, labels, test_images, test_labels = data(seed)
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=request["lr"], momentum=request["momentum"])
    params = request["params"]
    if params is not None and params.get("compressor") in ("randomk", "dithering"):
        params = {**params, "seed": seed + 1}
    wrapped = bps.DistributedOptimizer(optimizer, model.named_parameters(), compression_params=params)
    steps = epochs * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, request["lr"], total_steps=steps, cycle_momentum=False, pct_start=0.15
    )
    rng = np.random.default_rng(seed)
    before = bps.counters()
    gc.collect()
    bps.barrier()
    cpu, start = time.process_time_ns(), time.monotonic_ns()
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(labels)))
        for first in range(0, len(labels) - BATCH + 1, BATCH):
            mine = order[first + bps.rank() : first + BATCH : bps.size()]
            wrapped.zero_grad()
            nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            wrapped.step()
            schedule.step()
    end, cpu = time.monotonic_ns(), time.process_time_ns() - cpu
    after = bps.counters()
    wrapped._exchange.remove()
    with torch.no_grad():
        right = float((model(test_images).argmax(1) == test_labels).float().mean())
    moved = {name: after[name] - before[name] for name in ("pushed_bytes", "pushed_wire_bytes")}
    return {"start_ns": start, "end_ns": end, "cpu_ns": cpu, "accuracy": 100 * right, "steps": steps, **moved}


def main() -> None:
    serve({"setup": setup, "train": train})
    bps.shutdown()


if __name__ == "__main__":
    main()
