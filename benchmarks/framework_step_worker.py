"""One rank of ``framework_step.py``: a step of one framework, as its users write it, run when told."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import byteps
from byteps.tools.bench.member import Message, serve

Step = Callable[[], Any]  # returns the last gradient, as something that float() takes


def torch_step(tensors: int, elements: int, factor: int) -> Step:
    import torch

    import byteps.torch as bps

    torch.set_num_threads(1)
    values = [torch.full((elements,), float(4 ** bps.rank())) for _ in range(tensors)]

    def step() -> float:
        handles = [
            bps.push_pull_async(value * 2 if factor > 1 else value, name=f"gradient {i}", priority=-i)
            for i, value in reversed(list(enumerate(values)))
        ]
        results = [bps.synchronize(handle) for handle in handles]
        return float(results[-1][-1])

    return step


def tensorflow_step(tensors: int, elements: int, factor: int) -> Step:
    import tensorflow as tf

    import byteps.tensorflow as bps

    values = [tf.fill((elements,), float(4 ** bps.rank())) for _ in range(tensors)]

    @tf.function
    def graph(values: list[Any]) -> Any:
        return bps.push_pull([value * 2 if factor > 1 else value for value in values], name="gradient")

    return lambda: float(graph(values)[-1][-1])


def mxnet_step(tensors: int, elements: int, factor: int) -> Step:
    import mxnet as mx

    import byteps.mxnet as bps
    from byteps.mxnet.memory import item
    from byteps.mxnet.ops import run_in_place
    from byteps.plugin.group import Group

    values = [mx.nd.full((elements,), 4 ** bps.rank()) for _ in range(tensors)]
    gradients = [value.copy() for value in values]
    items = [item(value, "push_pull", f"gradient {i}") for i, value in enumerate(gradients)]
    group = Group("push_pull", items, agree="gradients")

    def step() -> float:
        if factor > 1:
            for value, gradient in zip(values, gradients, strict=True):
                mx.nd.broadcast_add(value, value, out=gradient)
        run_in_place(group, gradients)  # as in a trainer, the result replaces the gradient
        return float(gradients[-1][-1].asscalar())

    return step


def jax_step(tensors: int, elements: int, factor: int) -> Step:
    import jax
    import jax.numpy as jnp

    import byteps.jax as bps

    values = [jnp.full((elements,), float(4 ** bps.rank())) for _ in range(tensors)]

    @jax.jit
    def program(values: list[Any]) -> Any:
        return bps.push_pull([value * 2 if factor > 1 else value for value in values], name="gradient")

    def step() -> float:
        return float(jax.block_until_ready(program(values))[-1][-1])

    return step


STEPS = {"torch": torch_step, "tensorflow": tensorflow_step, "mxnet": mxnet_step, "jax": jax_step}


class Worker:
    def __init__(self) -> None:
        self.step: Step = lambda: None
        self.factor = 1

    def setup(self, request: Message) -> Message:
        byteps.init()
        self.factor = 2 if request["compute"] else 1
        elements = request["nbytes"] // 4
        self.step = STEPS[request["framework"]](request["tensors"], elements, self.factor)
        return {}

    def steps(self, request: Message) -> Message:
        """One sample: steps in a row, after one that is not timed."""
        self.step()
        gc.collect()
        byteps.barrier()
        cpu, start = time.process_time_ns(), time.monotonic_ns()
        for _ in range(request["inner"]):
            got = self.step()
        end = time.monotonic_ns()
        cpu = time.process_time_ns() - cpu
        wanted = self.factor * sum(4**rank for rank in range(byteps.size())) / byteps.size()
        if got != wanted:
            raise AssertionError(f"the last gradient is {got}, expected {wanted}")
        return {"start_ns": start, "end_ns": end, "cpu_ns": cpu}


def main() -> None:
    worker = Worker()
    serve({"setup": worker.setup, "steps": worker.steps})
    byteps.shutdown()


if __name__ == "__main__":
    main()
