"""What ``bps bench compress`` measures: each case is a function of a partition's number, run many times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byteps import _core
from byteps.compress import CodecSpec
from byteps.compress.native import NativeCodec
from byteps.tools.bench.compress_goals import MEMCPY, beside
from byteps.tools.bench.compress_peers import peers

__all__ = ["CODECS", "MEMCPY", "Case", "cases"]

CODECS = {
    "onebit": "compressor=onebit",
    "onebit scaled": "compressor=onebit,scaling=true",
    "topk 0.001": "compressor=topk,k=0.001",
    "topk 0.01": "compressor=topk,k=0.01",
    "randomk 0.001": "compressor=randomk,k=0.001",
    "randomk 0.01": "compressor=randomk,k=0.01",
    "dithering 2 linear max": "compressor=dithering,k=2,normalize=max,partition=linear",
    "dithering 2 linear l2": "compressor=dithering,k=2,normalize=l2,partition=linear",
    "dithering 2 natural max": "compressor=dithering,k=2,normalize=max,partition=natural",
    "dithering 100 linear max": "compressor=dithering,k=100,normalize=max,partition=linear",
    "fp16": "fp16=true",
    "int8": "compressor=int8,rounding=nearest",
    "int8 stochastic": "compressor=int8,rounding=stochastic",
    "int4": "compressor=int4,rounding=nearest",
    "int4 stochastic": "compressor=int4,rounding=stochastic",
}
SEED = 1

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """One thing to measure; ``prepare()`` is not timed, ``work(i)`` does it once, on partition ``i``."""

    name: str
    work: Callable[[int], object]
    partitions: int
    inner: int
    payload_bytes: int = 0
    prepare: Callable[[], None] = lambda: None

    def timed_s(self, inner: int) -> float:
        """CPU time of so many runs. One thread that never waits: on a quiet machine it is the time."""
        self.prepare()
        began = time.thread_time()
        for i in range(inner):
            self.work(i % self.partitions)
        return time.thread_time() - began


def cases(n: int, partitions: int) -> Iterator[Case]:
    """Everything there is to measure, on partitions of n elements."""
    rng = np.random.default_rng(SEED)
    gradients = [rng.standard_normal(n, np.float32) for _ in range(partitions)]
    targets = [np.zeros(n, np.float32) for _ in range(partitions)]
    inner = 2 * partitions
    sources, sinks = [x.ctypes.data for x in gradients], [x.ctypes.data for x in targets]
    yield Case(MEMCPY, lambda i: _core.copy_memory(sinks[i], sources[i], 4 * n), partitions, inner)
    for name, text in CODECS.items():
        yield from _codec_cases(name, CodecSpec.from_text(text), gradients, targets, inner)
    for peer in peers(gradients, targets):
        yield Case(beside(peer.library, peer.what), peer.work, partitions, 2 if peer.is_slow else partitions)


def _codec_cases(
    name: str, spec: CodecSpec, gradients: list[Floats], targets: list[Floats], inner: int
) -> Iterator[Case]:
    n, count = gradients[0].size, len(gradients)
    codec = NativeCodec(spec, n, SEED)
    core = codec.core
    payloads = [np.frombuffer(codec.encode(x, 0), np.uint8) for x in gradients]
    _check(name, codec, gradients[0], payloads[0].tobytes())
    room = np.zeros(core.max_bytes, np.uint8)
    out = room.ctypes.data
    sources, sinks = [x.ctypes.data for x in gradients], [x.ctypes.data for x in targets]
    addresses = [payload.ctypes.data for payload in payloads]
    size = payloads[0].size

    def start_anew() -> None:
        for target in targets:  # an error, or a sum, that grows from sample to sample ends at infinity
            target.fill(0)

    # The arrays live as long as the functions that use their addresses.
    keep = (codec, room, payloads, gradients, targets)

    def compress(i: int, _keep: Any = keep) -> object:
        return core.encode(sources[i], 0, out)

    def decode(i: int, _keep: Any = keep) -> None:
        core.decode(addresses[i], payloads[i].size, 0, sinks[i])

    def add(i: int, _keep: Any = keep) -> None:
        core.decode_add(addresses[i], payloads[i].size, 0, sinks[i])

    def with_feedback(i: int, _keep: Any = keep) -> object:
        return core.encode_with_feedback(sources[i], 1.0, sinks[i], 0, out)

    yield Case(f"{name}: compress", compress, count, inner, size)
    yield Case(f"{name}: decode", decode, count, inner, size)
    yield Case(f"{name}: decode and add", add, count, inner, size, start_anew)
    yield Case(f"{name}: compress with ef", with_feedback, count, inner, size, start_anew)


def _check(name: str, codec: NativeCodec, x: Floats, payload: bytes) -> None:
    """A codec that is fast and wrong measures nothing: what it sends must point the way the gradient does."""
    decoded = codec.decode(payload, 0)
    if not (np.isfinite(decoded).all() and float(np.dot(decoded.astype(np.float64), x)) > 0):
        raise RuntimeError(f"{name}: what was decoded has nothing to do with what was encoded")
