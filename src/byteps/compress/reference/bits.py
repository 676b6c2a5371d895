"""Streams of bits, the lowest bit of a byte first, and the two codes of whole numbers that go into them.

Elias delta (P. Elias, "Universal codeword sets and representations of the integers", 1975) and Rice (R. F.
Rice, "Some practical universal noiseless coding techniques", 1979), with the bits of a number lowest first.
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference.arrays import Ints

__all__ = ["Reader", "Symbols", "elias_delta", "fixed", "interleaved", "pack", "rice"]

Symbols = tuple[Ints, Ints]  # bits as uint64, and how many of them count


def _log2(v: Ints) -> Ints:
    """floor(log2 v), exactly: v is below 2^53."""
    exponent: Ints = np.frexp(v.astype(np.float64))[1].astype(np.uint64)
    exponent -= np.uint64(1)
    return exponent


def elias_delta(v: Ints) -> Symbols:
    """v >= 1: M zeros, a one, M bits of L, N bits of v; N = floor(log2 v), L = N + 1, M = floor(log2 L)."""
    one = np.uint64(1)
    v = np.asarray(v, np.uint64)
    n = _log2(v)
    length = n + one
    m = _log2(length)
    head = one << m | (length - (one << m)) << (m + one)
    return head | (v - (one << n)) << (m + m + one), m + m + one + n


def rice(v: Ints, b: int) -> Symbols:
    """For v >= 0: v >> b zeros, a one, the b low bits of v. One symbol for the zeros, one for the rest."""
    v = np.asarray(v, np.uint64)
    zeros = v >> np.uint64(b)
    rest = (v & np.uint64((1 << b) - 1)) << np.uint64(1) | np.uint64(1)
    return interleaved((np.zeros_like(v), zeros), (rest, np.full_like(v, b + 1)))


def fixed(v: Ints, width: int) -> Symbols:
    return np.asarray(v, np.uint64), np.full(np.shape(v), width, np.uint64)


def interleaved(*columns: Symbols) -> Symbols:
    """The first of every column, then the second of every column, and so on."""
    return (
        np.stack([bits for bits, _ in columns], axis=-1).ravel(),
        np.stack([width for _, width in columns], axis=-1).ravel(),
    )


def pack(*parts: Symbols) -> bytes:
    """All symbols of all parts in a row, zeros up to the next byte."""
    bits = np.concatenate([part[0] for part in parts])
    widths = np.concatenate([part[1] for part in parts]).astype(np.int64)
    starts = np.cumsum(widths) - widths
    place = np.arange(int(widths.sum())) - np.repeat(starts, widths)
    # Bits above the 64th exist only in runs of zeros.
    shift = np.minimum(place, 63).astype(np.uint64)
    each = np.repeat(bits, widths) >> shift & np.uint64(1)
    return np.packbits(each.astype(np.uint8), bitorder="little").tobytes()


class Reader:
    """Reads what ``pack`` wrote, one number at a time."""

    def __init__(self, data: bytes) -> None:
        self._bits: list[int] = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").tolist()
        self._at = 0

    def get(self, width: int) -> int:
        taken = self._bits[self._at : self._at + width]
        self._at += width
        return sum(bit << place for place, bit in enumerate(taken))

    def _zeros(self) -> int:
        one = self._bits.index(1, self._at)
        zeros, self._at = one - self._at, one + 1
        return zeros

    def elias_delta(self) -> int:
        m = self._zeros()
        n = (1 << m | self.get(m)) - 1
        return 1 << n | self.get(n)

    def rice(self, b: int) -> int:
        return self._zeros() << b | self.get(b)
