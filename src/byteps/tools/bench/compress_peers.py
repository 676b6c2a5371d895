"""What PyTorch and NumPy offer for the work of a codec: the same arithmetic in as few calls as they need.

They are what a script would write that compresses by itself. Randomness is theirs. What they make is not our
payloads: indices are not coded, and levels of dithering are not packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Peer", "peers"]

Floats = npt.NDArray[np.float32]
BLOCK = 256


class Peer(NamedTuple):
    """Work that stands beside ours: ``what`` is the name of our case."""

    library: str
    what: str
    work: Callable[[int], object]
    is_slow: bool = False  # takes many times as long as the others: once around is enough


def peers(gradients: list[Floats], targets: list[Floats]) -> Iterator[Peer]:
    """Everything there is to compare with, on these partitions."""
    yield from _numpy(gradients, targets)
    yield from _torch(gradients, targets)


def _blocks(n: int) -> int:
    return n // BLOCK * BLOCK


def _numpy(gradients: list[Floats], targets: list[Floats]) -> Iterator[Peer]:
    n = gradients[0].size
    rng = np.random.default_rng(1)
    signs = [np.packbits(x < 0) for x in gradients]
    halves = [x.astype(np.float16) for x in gradients]

    def blocks(i: int, most: int) -> tuple[Any, Any]:
        x = gradients[i][: _blocks(n)].reshape(-1, BLOCK)
        steps = np.abs(x).max(axis=1, keepdims=True) / np.float32(most)
        return np.rint(x / steps).astype(np.int8), steps

    def packed(i: int) -> object:
        codes = blocks(i, 7)[0].reshape(-1).view(np.uint8)
        return codes[0::2] & 15 | codes[1::2] << 4

    def dithered(i: int) -> object:
        x = gradients[i]
        y = np.abs(x) * (np.float32(2) / np.abs(x).max())
        return np.copysign(np.floor(y + rng.random(n, np.float32)), x).astype(np.int8)

    coded = [blocks(i, 127) for i in range(len(gradients))]
    few = max(1, int(0.001 * n))

    def largest(i: int) -> object:
        chosen = np.argpartition(np.abs(gradients[i]), n - few)[n - few :]
        return chosen, gradients[i][chosen]

    def add_blocks(i: int) -> object:
        codes, steps = coded[i]
        target = targets[i][: _blocks(n)].reshape(-1, BLOCK)
        return np.add(target, codes * steps, out=target)

    add = np.add
    yield Peer("NumPy", "onebit: compress", lambda i: np.packbits(gradients[i] < 0))
    yield Peer(
        "NumPy", "onebit: decode", lambda i: 1 - 2 * np.unpackbits(signs[i], count=n).astype(np.float32)
    )
    yield Peer("NumPy", "topk 0.001: compress", largest, True)
    yield Peer("NumPy", "randomk 0.001: compress", lambda i: gradients[i][rng.choice(n, few, replace=False)])
    yield Peer("NumPy", "dithering 2 linear max: compress", dithered, True)
    yield Peer("NumPy", "fp16: compress", lambda i: gradients[i].astype(np.float16))
    yield Peer("NumPy", "fp16: decode", lambda i: halves[i].astype(np.float32))
    yield Peer("NumPy", "fp16: decode and add", lambda i: add(targets[i], halves[i], out=targets[i]))
    yield Peer("NumPy", "int8: compress", lambda i: blocks(i, 127))
    yield Peer("NumPy", "int8: decode", lambda i: coded[i][0] * coded[i][1])
    yield Peer("NumPy", "int8: decode and add", add_blocks)
    yield Peer("NumPy", "int4: compress", packed)


def _torch(gradients: list[Floats], targets: list[Floats]) -> Iterator[Peer]:
    import torch

    torch.set_num_threads(1)
    n = gradients[0].size
    tensors = [torch.from_numpy(x) for x in gradients]
    sums = [torch.from_numpy(x) for x in targets]
    halves = [x.to(torch.float16) for x in tensors]
    few = max(1, int(0.001 * n))
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)

    def sign_and_pack(i: int) -> object:
        negative = torch.sign(tensors[i][: n // 8 * 8]) < 0
        return (negative.view(-1, 8).to(torch.uint8) * weights).sum(dim=1, dtype=torch.uint8)

    def blocks(i: int, most: int) -> tuple[Any, Any]:
        x = tensors[i][: _blocks(n)].view(-1, BLOCK)
        steps = x.abs().amax(dim=1, keepdim=True) / most
        return (x / steps).round_().to(torch.int8), steps

    def packed(i: int) -> object:
        codes = blocks(i, 7)[0].view(-1, 2).view(torch.uint8) & 15
        return codes[:, 0] | codes[:, 1] << 4

    def dithered(i: int) -> object:
        x = tensors[i]
        y = x.abs() * (2 / x.abs().max())
        return torch.copysign((y + torch.rand(n)).floor_(), x).to(torch.int8)

    coded = [blocks(i, 127) for i in range(len(tensors))]

    def add_blocks(i: int) -> object:
        codes, steps = coded[i]
        return sums[i][: _blocks(n)].view(-1, BLOCK).addcmul_(codes, steps)

    yield Peer("torch", "onebit: compress", sign_and_pack, True)
    yield Peer("torch", "topk 0.001: compress", lambda i: torch.topk(tensors[i].abs(), few), True)
    yield Peer("torch", "randomk 0.001: compress", lambda i: tensors[i][torch.randperm(n)[:few]], True)
    yield Peer("torch", "dithering 2 linear max: compress", dithered)
    yield Peer("torch", "fp16: compress", lambda i: tensors[i].to(torch.float16))
    yield Peer("torch", "fp16: decode", lambda i: halves[i].to(torch.float32))
    yield Peer("torch", "fp16: decode and add", lambda i: sums[i].add_(halves[i].to(torch.float32)))
    yield Peer("torch", "int8: compress", lambda i: blocks(i, 127))
    yield Peer("torch", "int8: decode", lambda i: coded[i][0] * coded[i][1])
    yield Peer("torch", "int8: decode and add", add_blocks)
    yield Peer("torch", "int4: compress", packed)
