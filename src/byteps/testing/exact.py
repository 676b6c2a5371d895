"""Tensors whose sums are known exactly: worker r contributes 4^r times a pattern.

The sum over ranks of 4^r has a 1 at every rank's place in base 4, so a wrong sum tells who was missing or
counted twice. Patterns are small enough that every sum of up to ``MAX_RANKS`` ranks is exact in every
dtype, bfloat16 and int8 included; then the order of addition cannot matter either, and only true errors
show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["MAX_RANKS", "average", "contribution", "counted", "pattern", "total"]

Array = np.ndarray[Any, Any]

MAX_RANKS = 3  # 1 + 4 + 16 = 21, times 3 is 63: below 127 of int8 and exact in the 8 bits of bfloat16


def pattern(shape: tuple[int, ...], *, signed: bool = True, salt: int = 0) -> Array:
    """Small whole numbers from -3 to 3, or 0 to 3, that differ from place to place and with ``salt``."""
    places = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    values = (places * 5 + salt) % 7 - 3 if signed else (places * 3 + salt) % 4
    return values.reshape(shape)


def contribution(rank: int, shape: tuple[int, ...], *, signed: bool = True, salt: int = 0) -> Array:
    """What worker ``rank`` pushes, as int64; convert it to the dtype under test.

    >>> contribution(2, (4,)).tolist()
    [-48, 32, 0, -32]
    """
    scaled: Array = 4**rank * pattern(shape, signed=signed, salt=salt)
    return scaled


def total(size: int, shape: tuple[int, ...], *, signed: bool = True, salt: int = 0) -> Array:
    """The sum over all ranks, as int64."""
    sums: Array = (4**size - 1) // 3 * pattern(shape, signed=signed, salt=salt)
    return sums


def average(size: int, shape: tuple[int, ...], *, whole: bool, signed: bool = True, salt: int = 0) -> Array:
    """The average over all ranks: rounded toward zero as int64 when ``whole``, else as float64."""
    sums = total(size, shape, signed=signed, salt=salt)
    return np.sign(sums) * (np.abs(sums) // size) if whole else sums / size


def counted(value: int, unit: int = 1) -> list[int]:
    """How often each rank is in a sum at a place where the pattern is ``unit``, rank 0 first.

    >>> counted(1 + 16 + 16), counted(-3 * (1 + 4), unit=-3)
    ([1, 0, 2], [1, 1])
    """
    number, digits = value // unit, []
    while number > 0:
        number, digit = divmod(number, 4)
        digits.append(digit)
    return digits
