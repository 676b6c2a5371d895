"""Tensors whose sums are known exactly, so that every measurement also proves that the right bytes moved.

Rank r of n contributes ``4**(r % 8) * (1 + i % 8)`` at place i, scaled by a small power of two. The sum of
one round shows who was counted and how often. Rounds follow each other in place, so each one multiplies by
n; the small scale leaves room for that below the largest float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["check", "fill", "rounds_that_fit"]

_START_EXPONENT = -100
_LARGEST_EXPONENT = 120
_BLOCK = 1 << 16

Array = np.ndarray[Any, np.dtype[np.float32]]


def _pattern(count: int) -> Array:
    return (1 + np.arange(count, dtype=np.int64) % 8).astype(np.float32)


def fill(array: Array, rank: int) -> None:
    """Write the contribution of this rank."""
    scale = np.float32(math.ldexp(4.0 ** (rank % 8), _START_EXPONENT))
    block = _pattern(min(_BLOCK, array.size)) * scale
    for at in range(0, array.size, _BLOCK):
        part = array[at : at + _BLOCK]
        part[:] = block[: part.size]


def rounds_that_fit(workers: int) -> int:
    """How many rounds in place stay finite."""
    if workers == 1:
        return 1 << 20
    first_sum = math.log2(sum(4.0 ** (rank % 8) for rank in range(workers)) * 8)
    return int((_LARGEST_EXPONENT - _START_EXPONENT - first_sum) / math.log2(workers))


def check(array: Array, workers: int, rounds: int) -> None:
    """Raise ValueError unless the array holds the sum of ``rounds`` rounds in place.

    Exact for 1, 2, 4, 8 workers; otherwise each round rounds, and the last bits may differ.
    """
    total = sum(4.0 ** (rank % 8) for rank in range(workers)) * float(workers) ** (rounds - 1)
    expected = _pattern(min(_BLOCK, array.size)).astype(np.float64) * math.ldexp(total, _START_EXPONENT)
    exact = workers & (workers - 1) == 0
    if exact:
        expected = expected.astype(np.float32)  # loses nothing, and comparing like with like is fast
    for at in range(0, array.size, _BLOCK):
        part = array[at : at + _BLOCK]
        wanted = expected[: part.size]
        right = part == wanted if exact else np.isclose(part, wanted, rtol=2e-5, atol=0.0)
        if not right.all():
            index = int(np.argmin(right))
            raise ValueError(
                f"wrong sum after {rounds} rounds of {workers} workers at element {at + index}: "
                f"expected {expected[index]!r}, got {part[index]!r}"
            )
