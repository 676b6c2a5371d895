"""randomk: the values at k positions that everybody can compute.

    C(x)[i] = f * x[i] if i is among k random positions, else 0
    f = n / k without error feedback (unbiased), else 1

Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (arXiv 1809.07599). Only the values travel. As the
positions are the same on every worker, k-vectors are added element by element and the sum goes back as it is.
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference import fp16
from byteps.compress.reference.arrays import Floats
from byteps.compress.reference.random import Stream, positions

__all__ = ["decode", "encode"]


def encode(x: Floats, k: int, stream: Stream, *, feedback: bool = False, halves: bool = False) -> bytes:
    """k float32, or with ``halves`` float16, in the order in which the positions are drawn."""
    factor = np.float32(1 if feedback else x.size / k)
    with np.errstate(over="ignore", invalid="ignore"):
        sent: Floats = x[positions(stream, x.size, k)] * factor
    return fp16.encode(sent) if halves else sent.astype("<f4").tobytes()


def decode(payload: bytes, n: int, stream: Stream, *, halves: bool = False) -> Floats:
    values = np.frombuffer(payload, "<f2" if halves else "<f4")
    out = np.zeros(n, np.float32)
    out[positions(stream, n, values.size)] = values
    return out
