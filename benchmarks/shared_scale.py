"""Should workers of int8 and int4 share their steps, so that a server can add codes without decoding?

    python benchmarks/shared_scale.py            a minute; prints both halves of the answer

Error: a network learns scikit-learn's digits with four workers, and in every step the gradients of the four
are rounded to codes with steps of their own, with the largest of the four (which costs a round trip before
anything can be sent), and with a step that everybody knows from the round before, with head room of two (what
is larger is cut off). The error is that of the sum, as a share of the sum.

Time: what a server spends on one contribution, decoding and adding it to float32, beside adding bytes to
32-bit and to 8-bit integers. 16-bit sums, which would be used, lie between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

WORKERS, STEPS, BATCH = 4, 300, 32
BLOCK, HEAD_ROOM = 256, 2.0
MOST = {"int8": 127, "int4": 7}
ELEMENTS = 1_024_000

Array = npt.NDArray[Any]


def gradients() -> list[Array]:
    """Of every step: the gradients of all workers, one a row."""
    import torch
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    from torch import nn

    torch.manual_seed(0)
    digits = load_digits()
    inputs = torch.from_numpy((digits.data / 16 - 0.3).astype(np.float32))
    labels = torch.from_numpy(digits.target.astype(np.int64))
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(STEPS):
        rows = []
        for _ in range(WORKERS):
            chosen = torch.from_numpy(rng.choice(len(labels), BATCH))
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen])
            loss.backward()
            rows.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy())
        found.append(np.stack(rows))
        mean = torch.from_numpy(found[-1].mean(axis=0))
        at = 0
        for p in model.parameters():
            p.grad = mean[at : at + p.numel()].view_as(p).clone()
            at += p.numel()
        optimizer.step()
    return found


def blocks_of(rows: Array) -> Array:
    """Rows cut into blocks; the rest that fills none is left out."""
    return rows[:, : rows.shape[1] // BLOCK * BLOCK].reshape(rows.shape[0], -1, BLOCK)


def error_of(x: Array, largest: Array, most: int) -> float:
    """Of the sum over workers, rounded to nearest within the largest magnitude that the step is made for."""
    step = np.maximum(largest / most, 1e-30)
    codes = np.clip(np.rint(x / step), -most, most)
    off = (codes * step).sum(axis=0) - x.sum(axis=0)
    return float(np.linalg.norm(off) / np.linalg.norm(x.sum(axis=0)))


def errors(steps: list[Array], most: int) -> dict[str, float]:
    """The median over the steps of training, for each way to choose a step."""
    found: dict[str, list[float]] = {"own": [], "largest of all": [], "of the round before": []}
    known: Array | None = None
    for rows in steps:
        x = blocks_of(rows)
        own = np.abs(x).max(axis=2, keepdims=True)
        largest = own.max(axis=0, keepdims=True)
        found["own"].append(error_of(x, own, most))
        found["largest of all"].append(error_of(x, largest, most))
        if known is not None:
            found["of the round before"].append(error_of(x, HEAD_ROOM * known, most))
        known = largest
    return {name: median(values) for name, values in found.items()}


def timed(work: Callable[[int], object], count: int) -> float:
    """Median seconds of one call, the partitions in turn."""
    samples = []
    for _ in range(31):
        began = time.thread_time()
        for i in range(count):
            work(i)
        samples.append((time.thread_time() - began) / count)
    return median(samples)


def times() -> dict[str, float]:
    """What a server takes for one contribution of a million elements."""
    from byteps import _core
    from byteps.compress import CodecSpec
    from byteps.compress.native import NativeCodec
    from byteps.tensor import dtypes

    rng = np.random.default_rng(0)
    count = 8
    codec = NativeCodec(CodecSpec("int8", rounding="nearest"), ELEMENTS)
    payloads = [
        np.frombuffer(codec.encode(rng.standard_normal(ELEMENTS, np.float32), 0), np.uint8)
        for _ in range(count)
    ]
    floats = [np.zeros(ELEMENTS, np.float32) for _ in range(count)]
    bytes_ = [np.zeros(ELEMENTS, np.int8) for _ in range(count)]
    words = [np.zeros(ELEMENTS, np.int32) for _ in range(count)]
    small = [rng.integers(-3, 4, ELEMENTS).astype(np.int8) for _ in range(count)]

    def decode_add(i: int) -> None:
        codec.core.decode_add(payloads[i].ctypes.data, payloads[i].size, 0, floats[i].ctypes.data)

    def add(kind: str, sums: list[Array], terms: list[Array]) -> Callable[[int], object]:
        number = dtypes.NUMBERS[kind]
        return lambda i: _core.reduce_add(number, sums[i].ctypes.data, terms[i].ctypes.data, ELEMENTS)

    return {
        "decode and add to float32": timed(decode_add, count),
        "add 8 bits to 8 bits": timed(add("int8", bytes_, small), count),
        "add 32 bits to 32 bits": timed(add("int32", words, words), count),
    }


def main() -> None:
    recorded = gradients()
    print(f"error of the sum of {WORKERS} workers, median of {STEPS} steps of training")
    for name, most in MOST.items():
        found = errors(recorded, most)
        print(f"  {name}: " + ", ".join(f"{way} {value:.2%}" for way, value in found.items()))
    print(f"one contribution of {ELEMENTS:,} elements on one core")
    for name, seconds in times().items():
        print(f"  {name}: {1e6 * seconds:.0f} us, {4 * ELEMENTS / seconds / 1e9:.1f} GB/s of float32")


if __name__ == "__main__":
    main()
