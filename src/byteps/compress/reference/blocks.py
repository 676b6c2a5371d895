"""int8, int4: blocks of 256 elements, each with its own step, as whole multiples of it.

    m = 127 or 7;  step = max |x| / m  of the block;  y = x * (m / max |x|)
    nearest:     q = y rounded, ties to even
    stochastic:  q = floor(y + u), u uniform in [0, 1): right in the mean
    C(x) = q * step

Dettmers, "8-bit approximations for parallelism in deep learning" (arXiv 1511.04561) sends gradients in 8
bits; the step per block keeps one large element from coarsening all others. Stochastic rounding: Alistarh et
al., "QSGD" (arXiv 1610.02132).
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference.arrays import Floats, Ints, scale_bytes
from byteps.compress.reference.random import Stream

__all__ = ["BLOCK", "MOST", "decode", "encode"]

BLOCK = 256
MOST = {8: 127, 4: 7}  # the largest code, by the bits of one
TINY = np.float32(2.0**-100)  # a block of smaller elements is sent as zeros


def encode(x: Floats, bits: int, stream: Stream | None) -> bytes:
    """For each block a float32 step, then the codes; ``stream``: what is drawn from, None for nearest."""
    u = None if stream is None else _chances(stream, x.size)
    blocks = []
    for begin in range(0, x.size, BLOCK):
        part = slice(begin, min(begin + BLOCK, x.size))
        step, q = _quantized(x[part], MOST[bits], None if u is None else u[part])
        blocks.append(scale_bytes(step) + (_halves(q) if bits == 4 else q.astype(np.int8).tobytes()))
    return b"".join(blocks)


def _quantized(x: Floats, most: int, u: Floats | None) -> tuple[float, Ints]:
    largest = np.abs(x).max()
    if not np.isfinite(largest):  # all of the block decodes to NaN: an overflow stays visible
        return float("nan"), np.zeros(x.size, np.int64)
    if largest < TINY:
        return 0.0, np.zeros(x.size, np.int64)
    with np.errstate(under="ignore"):
        y = x * (np.float32(most) / largest)
        q = np.rint(y) if u is None else np.clip(np.floor(y + u), -most, most)
    return float(largest / np.float32(most)), q.astype(np.int64)


def _chances(stream: Stream, n: int) -> Floats:
    """Multiples of 2^-16 in [0, 1): one number of 32 bits serves the elements i and i + 8 of each 16."""
    index = np.arange(n)
    drawn = stream.bits(index // 16 * 8 + index % 8)
    half = np.where(index % 16 < 8, drawn & 0xFFFF, drawn >> 16)
    chances: Floats = half.astype(np.float32) * np.float32(2.0**-16)
    return chances


def _halves(q: Ints) -> bytes:
    """Two codes to a byte, in two's complement, the first in the lower half."""
    padded = np.zeros(-(-q.size // 2) * 2, np.uint8)
    padded[: q.size] = q & 15
    return (padded[0::2] | padded[1::2] << 4).astype(np.uint8).tobytes()


def decode(payload: bytes, n: int, bits: int) -> Floats:
    out = np.empty(n, np.float32)
    at = 0
    for begin in range(0, n, BLOCK):
        count = min(BLOCK, n - begin)
        step = np.frombuffer(payload, "<f4", 1, at)[0]
        at += 4
        if bits == 8:
            q = np.frombuffer(payload, np.int8, count, at)
            at += count
        else:
            pairs = np.frombuffer(payload, np.uint8, (count + 1) // 2, at)
            q = np.stack([pairs & 15, pairs >> 4], axis=1).reshape(-1)[:count].astype(np.int8)
            q = (q ^ 8) - 8
            at += pairs.size
        with np.errstate(under="ignore", invalid="ignore"):
            out[begin : begin + count] = q.astype(np.float32) * step
    return out
