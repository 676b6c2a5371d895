"""A worker of ``kvstore.py``, in the environment of MXNet: the layers of ``step.py`` in Gluon."""

from __future__ import annotations

import time
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon

from byteps.tools.bench.member import Message, serve

LAYERS, BATCH = 4, 8  # as train_step_worker.py has them
WIDTH, TINY_WIDTH = 1024, 64
LEARNING_RATE = 1e-3


class Worker:
    def setup(self, request: Message) -> Message:
        """The network, and a trainer with the defaults of ``dist_sync``: servers update the parameters."""
        mx.random.seed(1)
        width = TINY_WIDTH if request["tiny"] else WIDTH
        self.network = gluon.nn.HybridSequential()
        for _ in range(LAYERS):
            self.network.add(gluon.nn.Dense(width, in_units=width))
        self.network.initialize(mx.init.Xavier())
        options = {"learning_rate": LEARNING_RATE}
        self.trainer = gluon.Trainer(self.network.collect_params(), "sgd", options, kvstore="dist_sync")
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.inputs = mx.nd.random.normal(shape=(BATCH, width))
        self.labels = mx.nd.random.randint(0, width, shape=(BATCH,)).astype("float32")
        self.step()
        self.initial = self.sums()
        return {}

    def step(self) -> None:
        with autograd.record():
            loss = self.loss(self.network(self.inputs), self.labels)
        loss.backward()
        self.trainer.step(BATCH)
        mx.nd.waitall()

    def steps(self, request: Message) -> Message:
        """One sample: steps in a row, after one that is not timed and aligns the workers."""
        self.step()
        cpu, start = time.process_time_ns(), time.monotonic_ns()
        for _ in range(request["inner"]):
            self.step()
        end = time.monotonic_ns()
        return {"start_ns": start, "end_ns": end, "cpu_ns": time.process_time_ns() - cpu}

    def sums(self) -> list[float]:
        values: list[Any] = [each.data() for each in self.network.collect_params().values()]
        return [float(value.astype("float64").sum().asscalar()) for value in values]

    def parameters(self, request: Message) -> Message:
        sums = self.sums()
        return {"sums": sums, "changed": sums != self.initial}


def main() -> None:
    worker = Worker()
    serve({"setup": worker.setup, "steps": worker.steps, "parameters": worker.parameters})


if __name__ == "__main__":
    main()
