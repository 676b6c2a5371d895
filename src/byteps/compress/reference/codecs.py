"""The references behind one interface, with the arguments of the native ``Codec``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from byteps.compress.params import CodecSpec
from byteps.compress.reference import blocks, dithering, fp16, onebit, randomk, topk
from byteps.compress.reference.arrays import Floats
from byteps.compress.reference.random import Stream

__all__ = ["Codec", "make"]


@dataclass(frozen=True)
class Codec(ABC):
    """One codec for a partition of ``n`` elements; ``seed`` and ``key`` name what it draws from."""

    spec: CodecSpec
    n: int
    seed: int = 1
    key: int = 0

    @abstractmethod
    def encode(self, x: Floats, round: int) -> bytes: ...

    @abstractmethod
    def decode(self, payload: bytes, round: int) -> Floats: ...

    def stream(self, round: int) -> Stream:
        return Stream(self.seed, self.key, round)


class _OneBit(Codec):
    def encode(self, x: Floats, round: int) -> bytes:
        return onebit.encode(x, scaling=self.spec.scaling)

    def decode(self, payload: bytes, round: int) -> Floats:
        return onebit.decode(payload, self.n)


class _TopK(Codec):
    def encode(self, x: Floats, round: int) -> bytes:
        return topk.encode(x, self.spec.count(self.n), halves=self.spec.fp16)

    def decode(self, payload: bytes, round: int) -> Floats:
        return topk.decode(payload, self.n, halves=self.spec.fp16)


class _RandomK(Codec):
    def encode(self, x: Floats, round: int) -> bytes:
        feedback, halves = self.spec.ef is not None, self.spec.fp16
        count = self.spec.count(self.n)
        return randomk.encode(x, count, self.stream(round), feedback=feedback, halves=halves)

    def decode(self, payload: bytes, round: int) -> Floats:
        return randomk.decode(payload, self.n, self.stream(round), halves=self.spec.fp16)


class _Dithering(Codec):
    def encode(self, x: Floats, round: int) -> bytes:
        l2, natural = self.spec.normalize == "l2", self.spec.partition == "natural"
        return dithering.encode(x, int(self.spec.k or 0), self.stream(round), l2=l2, natural=natural)

    def decode(self, payload: bytes, round: int) -> Floats:
        natural = self.spec.partition == "natural"
        return dithering.decode(payload, self.n, int(self.spec.k or 0), natural=natural)


class _Fp16(Codec):
    def encode(self, x: Floats, round: int) -> bytes:
        return fp16.encode(x)

    def decode(self, payload: bytes, round: int) -> Floats:
        return fp16.decode(payload, self.n)


class _Blocks(Codec):
    @property
    def bits(self) -> int:
        return 4 if self.spec.compressor == "int4" else 8

    def encode(self, x: Floats, round: int) -> bytes:
        return blocks.encode(x, self.bits, None if self.spec.rounding == "nearest" else self.stream(round))

    def decode(self, payload: bytes, round: int) -> Floats:
        return blocks.decode(payload, self.n, self.bits)


_CODECS: dict[str, Callable[[CodecSpec, int, int, int], Codec]] = {
    "onebit": _OneBit,
    "topk": _TopK,
    "randomk": _RandomK,
    "dithering": _Dithering,
    "fp16": _Fp16,
    "int8": _Blocks,
    "int4": _Blocks,
}


def make(spec: CodecSpec, n: int, seed: int = 1, key: int = 0) -> Codec:
    """The reference of a spec; KeyError when the spec has no codec."""
    return _CODECS[str(spec.codec)](spec, n, seed, key)
