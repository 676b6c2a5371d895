"""A native codec of a spec, with NumPy arrays instead of addresses."""

from __future__ import annotations

import numpy as np

from byteps import _core
from byteps.compress.floats import Floats
from byteps.compress.params import CodecSpec

__all__ = ["NativeCodec"]


class NativeCodec:
    """One partition's codec; arrays are contiguous float32 of ``n`` elements."""

    def __init__(self, spec: CodecSpec, n: int, seed: int = 1, key: int = 0, kernels: str = "best") -> None:
        self.n = n
        self.core = _core.Codec(
            str(spec.codec),
            n,
            k=spec.k or 0,
            scaling=spec.scaling,
            l2=spec.normalize == "l2",
            natural=spec.partition == "natural",
            nearest=spec.rounding == "nearest",
            feedback=spec.ef is not None,
            halves=spec.fp16 and spec.compressor in ("topk", "randomk"),
            seed=seed,
            key=key,
            kernels=kernels,
        )
        self._out = np.empty(self.core.max_bytes, np.uint8)

    def _check(self, x: Floats) -> int:
        if x.dtype != np.float32 or x.size != self.n or not x.flags.c_contiguous:
            raise ValueError(f"{self.n} contiguous float32 expected, got {x.size} of {x.dtype}")
        return x.ctypes.data

    def encode(self, x: Floats, round: int) -> bytes:
        nbytes = self.core.encode(self._check(x), round, self._out.ctypes.data)
        return self._out[:nbytes].tobytes()

    def decode(self, payload: bytes, round: int) -> Floats:
        out = np.empty(self.n, np.float32)
        data = np.frombuffer(payload, np.uint8)
        self.core.decode(data.ctypes.data, data.size, round, out.ctypes.data)
        return out

    def decode_add(self, payload: bytes, round: int, acc: Floats) -> None:
        """acc += decode(payload), in place."""
        data = np.frombuffer(payload, np.uint8)
        self.core.decode_add(data.ctypes.data, data.size, round, self._check(acc))

    def encode_with_feedback(self, g: Floats, c: float, error: Floats, round: int) -> bytes:
        """The payload; ``error`` is changed in place."""
        address = self._out.ctypes.data
        nbytes = self.core.encode_with_feedback(self._check(g), c, self._check(error), round, address)
        return self._out[:nbytes].tobytes()
