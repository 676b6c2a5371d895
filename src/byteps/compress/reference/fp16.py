"""fp16: each element as a 16-bit float, rounded to nearest, ties to even.

    C(x) = float16(x)

A value too large becomes inf and stays visible. A NaN stays a NaN, made quiet, as processors do it.
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference.arrays import Floats

__all__ = ["decode", "encode"]


def encode(x: Floats) -> bytes:
    with np.errstate(over="ignore", under="ignore"):
        halves = x.astype(np.float16).view(np.uint16)
    bits = x.view(np.uint32)
    quiet = bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x03FF
    return np.where(np.isnan(x), quiet, halves).astype("<u2").tobytes()


def decode(payload: bytes, n: int) -> Floats:
    return np.frombuffer(payload, "<f2", n).astype(np.float32)
