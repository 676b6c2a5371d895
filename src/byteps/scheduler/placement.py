"""Which shard of which server holds each partition of a tensor. Pure.

``balanced`` gives each partition to the server that is furthest below its share of the bytes, and on it to
the shard that holds the fewest: with equal shares two servers never differ by more than one partition. The
hashes are those that users of the original know; they look at the key (tensor id and index of the partition)
and not at sizes. What shares are best is said in ``shares.py``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

MASK = (1 << 64) - 1

Places = list[tuple[int, int]]


def aligned(partition_bytes: int) -> int:
    """BYTEPS_PARTITION_BYTES in whole elements of the largest dtype, so that no element is cut.

    >>> aligned(4099), aligned(3)
    (4096, 8)
    """
    return max(8, partition_bytes // 8 * 8)


def cut(nbytes: int, partition_bytes: int) -> list[int]:
    """Sizes of the partitions of a tensor; an empty tensor has none.

    >>> cut(20, 8)
    [8, 8, 4]
    """
    step = aligned(partition_bytes)
    return [min(step, nbytes - start) for start in range(0, nbytes, step)]


def naive(key: int) -> int:
    """Tensor id plus partition, times a prime."""
    return ((key >> 16) + key % 65_536) * 9_973 & MASK


def djb2(key: int) -> int:
    """Bernstein's hash of the key's decimal digits: h = 33 h + c."""
    value = 5_381
    for digit in str(key).encode():
        value = (value * 33 + digit) & MASK
    return value


def sdbm(key: int) -> int:
    """The hash of the sdbm library over the key's decimal digits: h = 65599 h + c."""
    value = 0
    for digit in str(key).encode():
        value = (value * 65_599 + digit) & MASK
    return value


def built_in(key: int) -> int:
    """The standard library's hash of the key's decimal digits; the same in every process, unlike hash()."""
    return int.from_bytes(hashlib.blake2b(str(key).encode(), digest_size=8).digest(), "little")


HASHES: dict[str, Callable[[int], int]] = {
    "naive": naive,
    "djb2": djb2,
    "sdbm": sdbm,
    "built_in": built_in,
}


class Placement:
    """How many bytes every shard of every server holds; deals partitions out and takes them back.

    ``shares`` of the servers add up to 1; without them all servers have the same. A hash can tell only
    ``bound`` different shares apart (BYTEPS_MIXED_MODE_BOUND).

    >>> Placement([1, 1]).place(0, [100, 50, 50])
    [(0, 0), (1, 0), (1, 0)]
    """

    def __init__(
        self,
        shards: Sequence[int],
        method: str = "balanced",
        coefficient: int = 1,
        shares: Sequence[Fraction] | None = None,
        bound: int = 101,
    ) -> None:
        self.loads = [[0] * count for count in shards]
        self._totals = [0] * len(shards)
        self._shares = list(shares or [Fraction(1, max(1, len(shards)))] * len(shards))
        self._bound = bound
        # Costs are compared as bytes * weight: whole numbers, so that the same bytes give the same places.
        self._used = [server for server, share in enumerate(self._shares) if share]
        common = math.lcm(*(self._shares[server].numerator for server in self._used))
        self._weights = [int(common / share) if share else 0 for share in self._shares]
        self._hash = None if method == "balanced" else HASHES[method]
        self._coefficient = coefficient if method == "built_in" else 1

    def place(self, tensor_id: int, sizes: Sequence[int]) -> Places:
        """A (server, shard) for every partition."""
        places: Places = []
        for index, size in enumerate(sizes):
            server, shard = self._lightest(size) if self._hash is None else self._hashed(tensor_id, index)
            self._add(server, shard, size)
            places.append((server, shard))
        return places

    def remove(self, places: Places, sizes: Sequence[int]) -> None:
        """A tensor is gone: its bytes no longer count."""
        for (server, shard), size in zip(places, sizes, strict=True):
            self._add(server, shard, -size)

    def _add(self, server: int, shard: int, size: int) -> None:
        self.loads[server][shard] += size
        self._totals[server] += size

    def _lightest(self, size: int) -> tuple[int, int]:
        server = min(self._used, key=lambda each: (self._totals[each] + size) * self._weights[each])
        shard = self.loads[server].index(min(self.loads[server]))
        return server, shard

    def _hashed(self, tensor_id: int, index: int) -> tuple[int, int]:
        assert self._hash is not None
        value = self._hash(tensor_id << 16 | index & 0xFFFF) * self._coefficient & MASK
        group = self._used
        if len(set(self._shares)) > 1:  # mixed mode: first which kind of server, then which one of them
            part = Fraction(value % self._bound, self._bound)
            value //= self._bound
            for share in sorted(set(self._shares), reverse=True):
                group = [server for server in self._used if self._shares[server] == share] or group
                part -= len(group) * share
                if part < 0:
                    break
        server = group[value % len(group)]
        return server, value // len(group) % len(self.loads[server])
