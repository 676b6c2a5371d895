"""The ways to train one network on two ranks, and in one process on the whole batch, for gradient_idioms.py.

Rank r has its share of every batch and its own branch of the network, so that each rank has parameters that
it does not use. The loss of the whole job is the mean of the ranks' losses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

import byteps.torch as bps
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel

SEED, BATCH, RANKS = 5, 8, 2
ALONE = "alone"
Optimizer = Callable[[Any], torch.optim.Optimizer]


class Network(nn.Module):
    """Layers of several kinds: a tied weight, an unused one, a frozen one, and a branch for each rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.first = nn.Linear(6, 9)
        self.norm = nn.LayerNorm(9)
        self.tied = nn.Linear(9, 9)
        self.large = nn.Linear(9, 2000, bias=False)  # more bytes than the core copies by itself
        self.small = nn.Linear(2000, 9)
        self.branches = nn.ModuleList(nn.Linear(9, 5) for _ in range(RANKS))
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Parameter(torch.ones(9), requires_grad=False)

    def forward(self, inputs: Tensor, branch: int) -> Tensor:
        hidden = self.norm(self.first(inputs)).tanh()
        hidden = self.tied(self.tied(hidden).tanh()) * self.frozen
        hidden = self.small(self.large(hidden).tanh())
        logits: Tensor = self.branches[branch](hidden)
        return logits


class Training:
    """What the script of a user has: a model, an optimizer and a loss."""

    def __init__(self, way: str, make: Optimizer) -> None:
        self.way = way
        self.network = Network()
        if bps.rank() > 0 and way != ALONE:
            with torch.no_grad():
                for parameter in self.network.parameters():
                    parameter.add_(1.0)  # the broadcast makes it right
        self.model: Any = self.network
        self.optimizer: Any = None
        self._wrap(make)

    def _wrap(self, make: Optimizer) -> None:
        way, network = self.way, self.network
        if way == "ddp":
            self.model = DistributedDataParallel(network)
        elif way == "hook":
            self.model = nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
            self.model.register_comm_hook(bps.CommHookState(), bps.push_pull_hook)
        self.optimizer = make(network.parameters())
        options: dict[str, Any] = {
            "fp16": {"compression": bps.Compression.fp16},
            "codec": {"compression_params": {"compressor": "topk", "k": 0.3, "ef": "vanilla"}},
        }.get(way, {})
        if way in ("optimizer", "cross", "fp16", "codec"):
            self.optimizer = bps.DistributedOptimizer(self.optimizer, network.named_parameters(), **options)
            bps.broadcast_parameters(network.state_dict(), root_rank=0)
        if way == "cross":
            self.optimizer = CrossBarrier(network, self.optimizer)

    @property
    def has_distributed_optimizer(self) -> bool:
        return self.way in ("optimizer", "cross", "fp16", "codec")

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Those that have a gradient, as scripts list them."""
        return [parameter for parameter in self.network.parameters() if parameter.grad is not None]

    def loss(self, step: int, part: int = 0) -> Tensor:
        """Of this rank; in one process, of all."""
        if self.way != ALONE:
            return self._loss_of(bps.rank(), step, part)
        losses = [self._loss_of(rank, step, part) for rank in range(RANKS)]
        return torch.stack(losses).mean()

    def _loss_of(self, rank: int, step: int, part: int) -> Tensor:
        source = torch.Generator().manual_seed(1000 * step + 10 * part + rank)
        inputs = torch.randn(BATCH, 6, generator=source)
        labels = torch.randint(5, (BATCH,), generator=source)
        return nn.functional.cross_entropy(self.model(inputs, rank), labels)

    def finish(self) -> None:
        """Parameters are whole."""
        if self.way == "cross":
            self.optimizer.synchronize()

    def digest(self) -> str:
        hashed = hashlib.sha256()
        for value in self.network.state_dict().values():
            hashed.update(value.contiguous().numpy().tobytes())
        return hashed.hexdigest()[:16]

    def distance(self, other: Training) -> float:
        """The largest difference of a parameter, relative to the largest value in its tensor."""
        pairs = zip(self.network.state_dict().values(), other.network.state_dict().values(), strict=True)
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


WAYS = ("optimizer", "ddp", "cross", "hook")
LOSSY = ("fp16", "codec")  # the ranks agree with each other, and not with one process


def start() -> None:
    torch.set_num_threads(1)
    bps.init()
    dist.init_process_group("byteps")
