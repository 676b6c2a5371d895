"""Trainings with known numbers: a small network on random data, for any optimizer and number of ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

STEPS = 4
BATCH = 16  # of the whole job; a multiple of every number of ranks that is tested
TOLERANCE = 1e-6  # of float32 sums in another order, after STEPS steps, relative to the parameters
SEED = 20240811

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3),  # eps: no division by gradients near 0
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, eps=1e-3),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2),
}


class Network(nn.Module):
    """Several kinds of layers, one layer used twice, one never, one parameter frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 6, 3).to(memory_format=torch.channels_last)
        self.first = nn.Linear(6 * 36, 33)
        self.shared = nn.Linear(33, 33)
        self.unused = nn.Linear(5, 5)
        self.frozen = nn.Parameter(torch.ones(33), requires_grad=False)
        self.last = nn.Linear(33, 7)
        self.again = self.shared

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.first(self.convolution(images).relu().flatten(1)).tanh()
        out: torch.Tensor = self.last(self.again(self.shared(x).tanh()).tanh() * self.frozen)
        return out


def network() -> Network:
    torch.manual_seed(SEED)
    return Network()


def batches(steps: int = STEPS) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(SEED + 1)
    for _ in range(steps):
        images = torch.randn(BATCH, 1, 8, 8, generator=generator)
        yield images, torch.randint(0, 7, (BATCH,), generator=generator)


def share(tensor: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    return tensor[rank * len(tensor) // size : (rank + 1) * len(tensor) // size]


def loss_of(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(images), labels)


def digest(model: nn.Module) -> str:
    """Equal for models that are the same bit for bit."""
    hashed = hashlib.sha256()
    for value in model.state_dict().values():
        hashed.update(value.contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def difference(model: nn.Module, wanted: nn.Module) -> float:
    """The largest difference of a parameter, relative to the largest value in its tensor."""
    return max(
        float((a - b).abs().max() / b.abs().max())
        for a, b in zip(model.state_dict().values(), wanted.state_dict().values(), strict=True)
    )
