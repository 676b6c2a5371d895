"""The element types that can be sent: their numbers on the wire, names and sizes in bytes."""

from __future__ import annotations

import math

__all__ = ["ITEM_BYTES", "NAMES", "NUMBERS", "VALID", "nbytes"]

# The index is the number on the wire; the native core has the same order.
NAMES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bfloat16")
ITEM_BYTES = (4, 8, 2, 1, 4, 1, 8, 2)
NUMBERS = {name: number for number, name in enumerate(NAMES)}
VALID = "float16, bfloat16, float32, float64, int8, uint8, int32 and int64"  # as error messages say it


def nbytes(dtype: int, shape: tuple[int, ...]) -> int:
    """Bytes of a dense tensor.

    >>> nbytes(NUMBERS["float16"], (3, 5))
    30
    """
    return math.prod(shape) * ITEM_BYTES[dtype]
