"""topk: the k elements of largest magnitude, with their indices.

    C(x)[i] = x[i] if i is among the k largest |x|, else 0

Stich, Cordonnier and Jaggi, "Sparsified SGD with memory" (arXiv 1809.07599). Of equal magnitudes the lower
index is kept. NaN counts as largest, so that a check for overflow still sees it.
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference import bits, fp16
from byteps.compress.reference.arrays import Floats, Ints

__all__ = ["decode", "encode", "largest"]


def largest(x: Floats, k: int) -> Ints:
    """The indices of the k largest, ascending."""
    # As bits, magnitudes order as the numbers do, and NaN lies above infinity; all NaNs are one here.
    size = np.minimum(x.view(np.uint32) & 0x7FFFFFFF, 0x7F800001).astype(np.int64)
    return np.sort(np.argsort(-size, kind="stable")[:k])


def encode(x: Floats, k: int, *, halves: bool = False) -> bytes:
    """uint32 k, the values in order of index, then the gaps between indices as Rice codes.

    ``halves``: values as 16-bit floats.
    """
    index = largest(x, k)
    values: Floats = x[index]
    gaps = np.diff(index, prepend=-1) - 1
    stream = bits.pack(bits.rice(gaps, _rice_bits(x.size, k)))
    sent = fp16.encode(values) if halves else values.astype("<f4").tobytes()
    return np.array(k, "<u4").tobytes() + sent + stream


def decode(payload: bytes, n: int, *, halves: bool = False) -> Floats:
    k = int(np.frombuffer(payload, "<u4", 1)[0])
    values = np.frombuffer(payload, "<f2" if halves else "<f4", k, offset=4)
    reader = bits.Reader(payload[4 + values.nbytes :])
    gaps = np.array([reader.rice(_rice_bits(n, k)) for _ in range(k)])
    out = np.zeros(n, np.float32)
    out[np.cumsum(gaps + 1) - 1] = values
    return out


def _rice_bits(n: int, k: int) -> int:
    return (n // k).bit_length() - 1
