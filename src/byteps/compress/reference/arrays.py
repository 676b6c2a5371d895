"""What the references share: array types, sums in a fixed order, scales as bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from byteps.compress.floats import Floats

__all__ = ["LANES", "Floats", "Ints", "lane_sum", "scale_bytes", "scale_of"]

Ints = npt.NDArray[Any]

LANES = 16


def lane_sum(x: npt.NDArray[np.float64]) -> float:
    """The sum in double: element i goes into lane i % 16, each lane in order, then the lanes pairwise.

    The order is part of the format: floating point sums in another order have other bits.
    """
    padded = np.zeros(-(-x.size // LANES) * LANES)
    padded[: x.size] = x
    lanes = np.add.accumulate(padded.reshape(-1, LANES), axis=0)[-1]
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return float(lanes[0])


def scale_bytes(scale: float) -> bytes:
    """Little-endian float32; all NaNs are sent as one."""
    if math.isnan(scale):
        return b"\x00\x00\xc0\x7f"
    with np.errstate(over="ignore"):
        return np.array(scale, "<f4").tobytes()


def scale_of(payload: bytes) -> np.float32:
    scale: np.float32 = np.frombuffer(payload, "<f4", 1).astype(np.float32)[0]
    return scale
