"""The randomness of codecs: functions of (seed, key, round, index), nothing else; as in ``random.h``.

Without state there is nothing to keep in step, and a replay draws the same numbers. The finalizers are
those of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014)
and of MurmurHash3 (Austin Appleby, public domain) with a second key between its two products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from byteps.compress.reference.arrays import Floats, Ints

__all__ = ["SERVER", "Stream", "positions", "stream_key"]

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_ROUNDS = 6
_KEY_INDEX = 0xFFFFFF00  # no partition has so many elements


def _mix64(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _WORD
    return x ^ x >> 31


SERVER = 0  # as a sender of stream_key(); child i is i + 1


def stream_key(name: str, partition: int, sender: int = SERVER) -> int:
    """The key of a partition's stream: by the name of its tensor, and another one for every sender.

    FNV-1a of the name. Where all members must draw alike (randomk), all are the server.
    """
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 & _WORD
    return _mix64((key + partition) & _WORD) ^ _mix64(sender)


@dataclass(frozen=True)
class Stream:
    """What one partition draws from in one round; ``key`` names tensor and partition."""

    seed: int
    key: int
    round: int

    def bits(self, index: Ints) -> Ints:
        """32 uniform bits for each index, as uint32."""
        mixed = _mix64(
            _mix64(_mix64((self.seed + _STEP) & _WORD) ^ self.key) + _STEP * (self.round + 1) & _WORD
        )
        low, high = np.uint32(mixed & 0xFFFFFFFF), np.uint32(mixed >> 32)
        h: Ints = np.asarray(index, np.uint32) * np.uint32(0x9E3779B1) + low
        h = (h ^ h >> 16) * np.uint32(0x85EBCA6B)
        h = (h ^ h >> 13 ^ high) * np.uint32(0xC2B2AE35)
        h ^= h >> 16
        return h

    def uniform(self, n: int) -> Floats:
        """For the indices 0 to n - 1: in [0, 1), multiples of 2^-24, exact in float32."""
        drawn: Floats = (self.bits(np.arange(n)) >> 8).astype(np.float32)
        drawn *= np.float32(2.0**-24)
        return drawn


def _scramble(value: Ints, key: Ints) -> Ints:
    h: Ints = (value + key) * np.uint32(0x9E3779B1)
    h = (h ^ h >> 15) * np.uint32(0x85EBCA6B)
    h ^= h >> 16
    return h


def positions(stream: Stream, n: int, k: int) -> Ints:
    """k distinct positions below n, each with chance exactly k / n: a permutation of 0 to k - 1.

    A Feistel network permutes the numbers below the next power of two; what falls outside [0, n) walks on
    until it is inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). The network
    is no uniform choice among all permutations, so a rotation by a uniform offset follows, which makes the
    chances exact.
    """
    width = max(2, (n - 1).bit_length())
    low_bits = np.uint32(width // 2)
    low_mask, high_mask = np.uint32((1 << width // 2) - 1), np.uint32((1 << width - width // 2) - 1)
    drawn = stream.bits(np.arange(_KEY_INDEX, _KEY_INDEX + _ROUNDS + 2))
    x = np.arange(k, dtype=np.uint32)
    outside = np.ones(k, bool)
    while outside.any():
        high, low = x[outside] >> low_bits, x[outside] & low_mask
        for r in range(0, _ROUNDS, 2):
            high ^= _scramble(low, drawn[r]) & high_mask
            low ^= _scramble(high, drawn[r + 1]) & low_mask
        x[outside] = high << low_bits | low
        outside = x >= n
    offset = (int(drawn[_ROUNDS]) << 32 | int(drawn[_ROUNDS + 1])) * n >> 64
    return (x.astype(np.int64) + offset) % n
