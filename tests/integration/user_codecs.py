"""Codecs as users write them, for the tests: loaded by BYTEPS_PLUGINS in workers and servers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import byteps.compress
from byteps.compress import CodecSpec

Floats = npt.NDArray[np.float32]


class Signs:
    """onebit without scaling, as bytes of NumPy's."""

    def __init__(self, n: int, spec: CodecSpec, seed: int, key: int) -> None:
        self.n = n
        self.max_bytes = (n + 7) // 8

    def encode(self, x: Floats, round: int) -> bytes:
        return np.packbits(x < 0).tobytes()

    def decode(self, payload: bytes, round: int) -> Floats:
        negative = np.unpackbits(np.frombuffer(payload, np.uint8), count=self.n)
        return np.where(negative, np.float32(-1), np.float32(1))


class Moody(Signs):
    def encode(self, x: Floats, round: int) -> bytes:
        if x[0] > 0:
            raise RuntimeError("rank 1 is moody")
        return super().encode(x, round)


byteps.compress.register("signs", Signs)
byteps.compress.register("moody", Moody)
