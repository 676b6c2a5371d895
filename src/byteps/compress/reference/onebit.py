"""onebit: the sign of each element and, with scaling, the mean magnitude.

    C(x) = s * sign(x),  s = mean |x|   (or 1 without scaling)

Seide et al., "1-bit stochastic gradient descent" (Interspeech 2014); with scaling, error feedback and
momentum: Zheng et al., "Communication-efficient distributed blockwise momentum SGD with error-feedback"
(arXiv 1905.10936).
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference.arrays import Floats, lane_sum, scale_bytes, scale_of

__all__ = ["decode", "encode"]


def encode(x: Floats, *, scaling: bool = False) -> bytes:
    """float32 s, then a bit per element: 1 iff x < 0, so zero, -0.0 and NaN are "not negative"."""
    with np.errstate(invalid="ignore", over="ignore"):
        scale = lane_sum(np.abs(x).astype(np.float64)) / x.size if scaling else 1.0
        return scale_bytes(scale) + np.packbits(x < 0, bitorder="little").tobytes()


def decode(payload: bytes, n: int) -> Floats:
    negative = np.unpackbits(np.frombuffer(payload, np.uint8, offset=4), count=n, bitorder="little")
    scale = scale_of(payload)
    return np.where(negative, -scale, scale).astype(np.float32)
