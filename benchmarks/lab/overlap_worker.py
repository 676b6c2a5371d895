"""A worker of ``overlap.py``: one simulated network in every method, and steps of one of them when told.

Computing is sleeping, so that the cores are free for communication, as they are beside a GPU. What a sleep
takes too long is taken off the next one. The networks are real modules with real parameters, optimizers and
backward passes; every gradient is a constant whose average is exact, and the parameters are checked.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

import byteps.torch as bps
from byteps.tools.bench.member import Message, serve
from byteps.torch.cross_barrier import CrossBarrier

LEARNING_RATE = 2.0**-6  # a power of two: updates are exact
WARM_STEPS = 1


class Clock:
    """Simulated computing: on average it takes as long as it says."""

    def __init__(self) -> None:
        self._late_s = 0.0

    def compute(self, seconds: float) -> None:
        wanted = seconds - self._late_s
        if wanted <= 0:
            self._late_s -= seconds
            return
        begun = time.monotonic()
        time.sleep(wanted)
        self._late_s = time.monotonic() - begun - wanted


CLOCK = Clock()


class _Work(torch.autograd.Function):
    """Passes its input on after a while; the gradient of each parameter is what its layer says."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, layer: Layer, *parameters: Tensor) -> Tensor:
        CLOCK.compute(layer.forward_s)
        ctx.layer = layer
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> Any:
        layer = ctx.layer
        CLOCK.compute(layer.backward_s)
        return outputs[0], None, *(torch.full_like(each, layer.gradient) for each in layer.parameters())


class Layer(nn.Module):
    """One layer: tensors of these sizes, and the seconds that it takes."""

    def __init__(self, elements: list[int], gradient: float) -> None:
        super().__init__()
        self.gradient = gradient
        self.forward_s = self.backward_s = 0.0
        for index, count in enumerate(elements):
            self.register_parameter(f"p{index}", nn.Parameter(torch.zeros(count)))
        self.tensors = tuple(self.parameters())  # to ask for them takes longer than to use them

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = _Work.apply(inputs, self, *self.tensors)
        return result


class Method:
    """One copy of the network, trained in one way."""

    def __init__(self, method: str, layers: list[Layer], bucket_mb: float) -> None:
        self.layers = layers
        plain = nn.Sequential(*layers)
        self.model: nn.Module = plain
        self.optimizer: Any = torch.optim.SGD(plain.parameters(), lr=LEARNING_RATE)
        self.wait: Callable[[], object] = lambda: None
        names = [(f"{method}.{name}", parameter) for name, parameter in plain.named_parameters()]
        if method == "ddp-gloo":
            self.model = nn.parallel.DistributedDataParallel(plain, bucket_cap_mb=bucket_mb)
        elif method != "alone":
            self.optimizer = bps.DistributedOptimizer(self.optimizer, names)
            if method == "fifo":  # all alike: what was pushed first is sent first
                exchange = self.optimizer._exchange
                exchange.set_order(exchange.parameters)
                for slot in exchange._slots.values():
                    slot.priority = 0
        if method == "cross-barrier":
            self.optimizer = CrossBarrier(plain, self.optimizer)
            self.wait = self.optimizer.synchronize

    def step(self, inputs: Tensor) -> int:
        """One step; when its backward pass ended."""
        self.optimizer.zero_grad()
        self.model(inputs).sum().backward()
        end = time.monotonic_ns()
        self.optimizer.step()
        return end


class Worker:
    def __init__(self) -> None:
        self.rank, self.workers = 0, 1
        self.methods: dict[str, Method] = {}
        self.inputs = torch.ones(1, requires_grad=True)

    def setup(self, request: Message) -> Message:
        torch.set_num_threads(1)
        self.rank, self.workers = request["rank"], request["workers"]
        bps.init()
        dist.init_process_group(
            "gloo",
            init_method=f"file://{request['store']}",
            rank=self.rank,
            world_size=self.workers,
            timeout=timedelta(seconds=60),
        )
        return {}

    def build(self, request: Message) -> Message:
        """The network in all methods; times come with each sample."""
        for method in request["peers"]:
            layers = [Layer(elements, 4.0**self.rank) for elements in request["elements"]]
            self.methods[method] = Method(method, layers, request["bucket_mb"])
        gc.collect()
        gc.freeze()
        return {}

    def steps(self, request: Message) -> Message:
        """One sample: from the end of one backward pass to that of one ``inner`` steps later."""
        name, inner = request["peer"], request["inner"]
        method = self.methods[name]
        for layer, (forward_s, backward_s) in zip(method.layers, request["times"], strict=True):
            layer.forward_s, layer.backward_s = forward_s, backward_s
            for parameter in layer.parameters():
                parameter.data.zero_()
        gc.disable()
        bps.barrier()
        for _ in range(WARM_STEPS):
            start = method.step(self.inputs)
        cpu = time.process_time_ns()
        for _ in range(inner):
            end = method.step(self.inputs)
        cpu = time.process_time_ns() - cpu
        method.wait()
        gc.enable()
        gc.collect()
        self._check(name, WARM_STEPS + inner)
        return {"start_ns": start, "end_ns": end, "cpu_ns": cpu}

    def _check(self, name: str, steps: int) -> None:
        mine = 4.0**self.rank
        average = sum(4.0**rank for rank in range(self.workers)) / self.workers
        expected = -LEARNING_RATE * steps * (mine if name == "alone" else average)
        for index, layer in enumerate(self.methods[name].layers):
            for parameter in layer.parameters():
                if not bool((parameter == expected).all()):
                    raise AssertionError(f"{name}: layer {index} is not {expected} after {steps} steps")


def main() -> None:
    worker = Worker()
    serve({"setup": worker.setup, "build": worker.build, "steps": worker.steps})
    dist.destroy_process_group()
    bps.shutdown()


if __name__ == "__main__":
    main()
