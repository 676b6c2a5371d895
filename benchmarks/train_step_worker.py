"""One rank of ``train_step.py``: holds a network in every method ready, and runs steps of one when told.

All methods of a network share the memory of its parameters, so that none has luckier pages. Before a sample
the parameters are set back; after it every rank checks that it has the parameters of rank 0, bit for bit.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import models
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional

import byteps.torch as bps
from byteps.tools.bench.member import Message, serve
from byteps.torch.cross_barrier import CrossBarrier
from byteps.torch.parallel import DistributedDataParallel
from byteps.worker import current

ALONE, DDP_ALONE = "alone", "ddp-alone"
PYTHON = "python"  # DistributedOptimizer over a core that does nothing: what is left is ours in Python
GLOO_TIMEOUT = timedelta(seconds=60)
LEARNING_RATE = 1e-3
LINEAR_WIDTHS = {"linear": 4096, "linear-1024": 1024}  # four layers: 268 MB and 16.8 MB of gradients
SMALL_LAYERS = 150  # two parameters each


def network(name: str, tiny: bool) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, inputs of this rank, and labels."""
    torch.manual_seed(1)
    if name in LINEAR_WIDTHS:
        width = 64 if tiny else LINEAR_WIDTHS[name]
        model: nn.Module = nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
        return model, *_batch(lambda: torch.randn(8, width), 8, width)
    if name == "resnet50":
        model = models.resnet50(10, 0.1 if tiny else 1.0)
        pixels = 32 if tiny else 64
        return model, *_batch(lambda: torch.randn(4, 3, pixels, pixels), 4, 10)
    if name == "transformer":
        width, layers = (32, 1) if tiny else (256, 4)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        model = nn.Sequential(nn.Embedding(1000, width), encoder, _First(), nn.Linear(width, 10))
        return model, *_batch(lambda: torch.randint(1000, (8, 16 if tiny else 64)), 8, 10)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(SMALL_LAYERS)))
    return model, *_batch(lambda: torch.randn(2, 8), 2, 8)


class _First(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden[:, 0]


def _batch(make: Callable[[], Tensor], count: int, classes: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2 + bps.rank())
    return make(), torch.randint(classes, (count,))


class Nothing:
    """In place of the core's client and of its handles: every operation is over at once."""

    def push_pull(self, *_: object) -> Nothing:
        return self

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return


def _done(result: Tensor) -> torch.futures.Future[Tensor]:
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(result)
    return future


class Method:
    """One network trained in one way; ``wait`` makes its parameters whole."""

    def __init__(self, method: str, model: nn.Module) -> None:
        self.optimizer: Any = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        self.model: nn.Module = model
        self.wait: Callable[[], object] = lambda: None
        names = [(f"{method}.{name}", parameter) for name, parameter in model.named_parameters()]
        if method in ("ddp-gloo", "hook", DDP_ALONE):
            self.model = nn.parallel.DistributedDataParallel(model)
            if method == DDP_ALONE:
                self.model.register_comm_hook(None, lambda _, bucket: _done(bucket.buffer()))
            if method == "hook":
                self.model.register_comm_hook(bps.CommHookState(), bps.push_pull_hook)
        elif method == "ddp":
            self.model = DistributedDataParallel(model)
        elif method in ("optimizer", "cross-barrier", PYTHON):
            self.optimizer = bps.DistributedOptimizer(self.optimizer, names)
        if method == "cross-barrier":
            self.optimizer = CrossBarrier(model, self.optimizer)
            self.wait = self.optimizer.synchronize

    def step(self, inputs: Tensor, labels: Tensor) -> int:
        """One step; the nanoseconds that this thread, which runs the hooks, spent in the backward pass."""
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(inputs), labels)
        start = time.thread_time_ns()
        loss.backward()
        end = time.thread_time_ns()
        self.optimizer.step()
        return end - start


class Worker:
    def __init__(self) -> None:
        self.methods: dict[str, Method] = {}
        self.inputs = self.labels = torch.empty(0)
        self.parameters: list[Tensor] = []  # that all methods share
        self.initial: list[Tensor] = []

    def setup(self, request: Message) -> Message:
        torch.set_num_threads(1)
        bps.init()
        dist.init_process_group(
            "gloo",
            init_method=f"file://{request['store']}",
            rank=request["rank"],
            world_size=request["workers"],
            timeout=GLOO_TIMEOUT,
        )
        return {
            "peers": [peer for peer in request["peers"] if peer != "hook" or hasattr(bps, "CommHookState")]
        }

    def build(self, request: Message) -> Message:
        """A network in all methods."""
        for method in request["peers"]:
            model, self.inputs, self.labels = network(request["network"], request["tiny"])
            if self.parameters:
                for parameter, shared in zip(model.parameters(), self.parameters, strict=True):
                    parameter.data = shared
            else:
                self.parameters = [parameter.data for parameter in model.parameters()]
            self.methods[method] = Method(method, model)
        self.initial = [parameter.clone() for parameter in self.parameters]
        return {"tensors": len(self.initial), "nbytes": sum(4 * each.numel() for each in self.initial)}

    def steps(self, request: Message) -> Message:
        """One sample: steps in a row, after one that is not timed."""
        method = self.methods[request["peer"]]
        for parameter, value in zip(self.parameters, self.initial, strict=True):
            parameter.copy_(value)
        method.step(self.inputs, self.labels)
        method.wait()
        session: Any = current.session
        client = session._client
        if request["peer"] == PYTHON:
            session._client = Nothing()
        gc.collect()
        gc.disable()  # a collection in the middle of a sample would be charged to one method
        bps.barrier()
        cpu, start = time.process_time_ns(), time.monotonic_ns()
        backward_ns = sum(method.step(self.inputs, self.labels) for _ in range(request["inner"]))
        method.wait()
        end = time.monotonic_ns()
        cpu = time.process_time_ns() - cpu
        gc.enable()
        session._client = client
        method.optimizer.zero_grad()  # memory that the next method can have
        if request["peer"] not in (ALONE, DDP_ALONE, PYTHON):
            self._check(request["peer"])
        if request["backward"]:
            start, end = 0, backward_ns
        return {"start_ns": start, "end_ns": end, "cpu_ns": cpu}

    def _check(self, method: str) -> None:
        sums = torch.stack([parameter.double().sum() for parameter in self.parameters])
        wanted = bps.broadcast(sums.clone(), 0, name="train-step.check")
        if not torch.equal(sums, wanted) or not sums.isfinite().all():
            raise AssertionError(f"{method}: the parameters of rank {bps.rank()} differ from those of rank 0")


def main() -> None:
    worker = Worker()
    serve({"setup": worker.setup, "build": worker.build, "steps": worker.steps})
    dist.destroy_process_group()
    bps.shutdown()


if __name__ == "__main__":
    main()
