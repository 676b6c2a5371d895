"""dithering: each element rounded at random to one of s levels, without bias.

    r = |x| / scale;  scale = max |x| or the l2 norm
    linear:   y = r * s, level = floor(y) + Bernoulli(y - floor(y)), value = sign(x) * scale * level / s
    natural:  level 0 is 0, level j is 2^(j - s); between levels l < r < u, u with chance (r - l) / (u - l)

linear with l2: Alistarh et al., "QSGD" (NIPS 2017, arXiv 1610.02132). natural: Horvath et al., "Natural
compression for distributed deep learning" (arXiv 1905.10988).
"""

from __future__ import annotations

import math

import numpy as np

from byteps.compress.reference import bits
from byteps.compress.reference.arrays import Floats, Ints, lane_sum, scale_bytes, scale_of
from byteps.compress.reference.random import Stream

__all__ = ["BLOCK", "decode", "encode"]

BLOCK = 4096  # elements that choose between dense and sparse together


def encode(x: Floats, s: int, stream: Stream, *, l2: bool = False, natural: bool = False) -> bytes:
    """float32 scale, then each block of 4096 elements in the shorter of two forms (``_dense``, ``_sparse``).

    A scale of 0, or one that is not finite, says everything: nothing follows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        norm = math.sqrt(lane_sum(np.square(x.astype(np.float64)))) if l2 else np.abs(x).max()
        scale = np.float32(norm)
    if not 0 < scale < math.inf:
        return scale_bytes(float(scale))
    with np.errstate(under="ignore"):
        r = np.abs(x) / scale
    u = stream.uniform(x.size)
    level = _natural_levels(r, u, s) if natural else _linear_levels(r, u, s)
    q = np.where(x < 0, -level, level)
    blocks = [_block(q[begin : begin + BLOCK], s) for begin in range(0, q.size, BLOCK)]
    return scale_bytes(float(scale)) + bits.pack(*blocks)


def _linear_levels(r: Floats, u: Floats, s: int) -> Ints:
    y = r * np.float32(s)
    whole = np.floor(y)
    level: Ints = whole.astype(np.int64)
    level += u < y - whole
    return level


def _natural_levels(r: Floats, u: Floats, s: int) -> Ints:
    mantissa, exponent = np.frexp(r)  # r = mantissa * 2^exponent, mantissa in [0.5, 1)
    lower = exponent.astype(np.int64) - 1 + s  # r lies between the levels lower and lower + 1
    chance = mantissa * np.float32(2) - np.float32(1)
    lowest = (lower < 1) | (r == 0)  # between 0 and 2^(1 - s)
    with np.errstate(over="ignore"):
        chance = np.where(lowest, np.ldexp(r, s - 1), chance)
    return np.where(lowest, 0, lower) + (u < chance)


def _block(q: Ints, s: int) -> bits.Symbols:
    dense, sparse = _dense(q, s), _sparse(q)
    return sparse if sparse[1].sum() < dense[1].sum() else dense


def _dense(q: Ints, s: int) -> bits.Symbols:
    """A zero; then for each element 1 bit sign, bit_length(s) bits level."""
    elements = bits.fixed(np.abs(q) << 1 | (q < 0), 1 + s.bit_length())
    return _chain(bits.fixed(np.zeros(1), 1), elements)


def _sparse(q: Ints) -> bits.Symbols:
    """A one; 1 + how many are not 0; for each of them gap, sign (1 bit), level. Numbers as Elias delta."""
    index = np.flatnonzero(q)
    gap = np.diff(index, prepend=-1)
    filled = q[index]
    elements = bits.interleaved(
        bits.elias_delta(gap), bits.fixed(filled < 0, 1), bits.elias_delta(np.abs(filled).astype(np.uint64))
    )
    return _chain(bits.fixed(np.ones(1), 1), bits.elias_delta(np.array([index.size + 1])), elements)


def _chain(*parts: bits.Symbols) -> bits.Symbols:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def decode(payload: bytes, n: int, s: int, *, natural: bool = False) -> Floats:
    scale = scale_of(payload)
    if not 0 < scale < math.inf:
        return np.full(n, 0 if scale == 0 else np.nan, np.float32)
    reader = bits.Reader(payload[4:])
    q = np.concatenate([_read_block(reader, min(BLOCK, n - begin), s) for begin in range(0, n, BLOCK)])
    with np.errstate(under="ignore"):
        if natural:
            power = np.where(q == 0, 0, np.ldexp(np.float32(1), np.abs(q) - s))
            share: Floats = (np.sign(q) * power).astype(np.float32)
        else:
            share = q.astype(np.float32) / np.float32(s)
        share *= scale
    return share


def _read_block(reader: bits.Reader, count: int, s: int) -> Ints:
    q = np.zeros(count, np.int64)
    if reader.get(1) == 0:
        for i in range(count):
            negative, level = reader.get(1), reader.get(s.bit_length())
            q[i] = -level if negative else level
        return q
    at = -1
    for _ in range(reader.elias_delta() - 1):
        at += reader.elias_delta()
        negative, level = reader.get(1), reader.elias_delta()
        q[at] = -level if negative else level
    return q
