"""Which shard of which server holds each partition of a tensor. Pure.

``balanced`` gives each partition to the server that is furthest below its share of the bytes, and on it to
the shard that holds the fewest: with equal shares two servers never differ by more than one partition. The
hashes are those that users of the original know; they look at the key (tensor id and index of the partition)
and not at sizes. What shares are best is said in ``shares.py``.

Places come as runs, and take about as long to find. Hashes repeat because they look at sixteen bits of the
index. ``balanced`` repeats once the servers are level: after a cycle in which every server got its share, and
each of its shards as many as the others, all are as far apart as before, so the next cycle is the same.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from byteps import _core
from byteps.scheduler.value import Value
from byteps.tensor.partition import chosen
from byteps.tensor.runs import Place, Runs, once

MASK = (1 << 64) - 1
HASHED = 1 << 16  # how many indices of partitions a hash can tell apart


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


class Placement(Value):
    """How many bytes every shard of every server holds; deals partitions out and takes them back.

    ``shares`` of the servers add up to 1; without them all servers have the same. A hash can tell only
    ``bound`` different shares apart (BYTEPS_MIXED_MODE_BOUND). ``piece`` is what travels.

    >>> Placement([1, 1]).place(0, nbytes=100, step=8)
    [(6, [(0, 0), (1, 0)]), (1, [(0, 0)])]
    """

    def __init__(
        self,
        shards: Sequence[int],
        method: str = "balanced",
        coefficient: int = 1,
        shares: Sequence[Fraction] | None = None,
        bound: int = 101,
        piece: int = _core.FAR_PIECE_BYTES,
    ) -> None:
        self.loads = [[0] * count for count in shards]
        self._totals = [0] * len(shards)
        self._places = [[(server, shard) for shard in range(count)] for server, count in enumerate(shards)]
        self._shares = list(shares or [Fraction(1, max(1, len(shards)))] * len(shards))
        # Costs are compared as bytes * weight: whole numbers, so that the same bytes give the same places.
        self._used = [server for server, share in enumerate(self._shares) if share]
        common = math.lcm(*(self._shares[server].numerator for server in self._used))
        self._weights = [int(common / share) if share else 0 for share in self._shares]
        self._cycle = self._level_cycle()
        self._cycle_partitions = self._cycle.total()
        self._hash = None if method == "balanced" else HASHES[method]
        self._piece = piece
        self._coefficient = coefficient if method == "built_in" else 1
        self._groups = self._share_groups(bound)

    def _level_cycle(self) -> Counter[Place]:
        """The least number of partitions for every place with which servers and shards stay level."""
        common = math.lcm(*(self._weights[server] for server in self._used))
        visits = {server: common // self._weights[server] for server in self._used}
        widths = {server: len(self.loads[server]) for server in self._used}
        times = math.lcm(*(widths[each] // math.gcd(widths[each], visits[each]) for each in self._used))
        each_shard = {each: times * visits[each] // widths[each] for each in self._used}
        return Counter({place: number for each, number in each_shard.items() for place in self._places[each]})

    def partition_bytes(self, nbytes: int) -> int:
        """What is best for a tensor of so many bytes that is not compressed."""
        return chosen(nbytes, self._shares, self._piece)

    def place(self, tensor_id: int, nbytes: int, step: int) -> Runs:
        """Deal out a tensor that is cut into partitions of ``step`` bytes; the last one may have less."""
        if self._hash is not None:
            runs = self._hashed(tensor_id, -(-nbytes // step))
            self._count(runs, nbytes, step, 1)
            return runs
        whole, rest = divmod(nbytes, step)
        return self._balanced(whole, step) + self._balanced(int(rest > 0), rest)

    def remove(self, runs: Runs, nbytes: int, step: int) -> None:
        """A tensor is gone: its bytes no longer count."""
        self._count(runs, nbytes, step, -1)

    def _count(self, runs: Runs, nbytes: int, step: int, sign: int) -> None:
        for times, places in runs:
            for place in places:
                self._add(place, sign * times * step)
        if nbytes % step:
            self._add(runs[-1][1][-1], sign * (nbytes % step - step))

    def _add(self, place: Place, size: int) -> None:
        server, shard = place
        self.loads[server][shard] += size
        self._totals[server] += size

    def _balanced(self, partitions: int, size: int) -> Runs:
        if not partitions:
            return []
        cycle = self._cycle_partitions
        dealt: list[Place] = []
        while partitions >= 2 * cycle:
            turn = self._deal(cycle, size)
            times, left = divmod(partitions, cycle)
            if Counter(turn) == self._cycle:
                for place in turn:
                    self._add(place, (times - 1) * size)
                return [*once(dealt), (times, turn), *once(self._deal(left, size))]
            dealt += turn
            partitions -= cycle
        return once(dealt + self._deal(partitions, size))

    def _deal(self, partitions: int, size: int) -> list[Place]:
        """One after the other, each where it weighs least; the first of several that are alike."""
        found: list[Place] = []
        heap = [((self._totals[each] + size) * self._weights[each], each) for each in self._used]
        heapq.heapify(heap)
        for _ in range(partitions):
            cost, server = heap[0]
            heapq.heapreplace(heap, (cost + size * self._weights[server], server))
            loads = self.loads[server]
            place = self._places[server][loads.index(min(loads))]
            self._add(place, size)
            found.append(place)
        return found

    def _hashed(self, tensor_id: int, partitions: int) -> Runs:
        places = [self._hashed_place(tensor_id, index) for index in range(min(partitions, HASHED))]
        times, left = divmod(partitions, HASHED)
        return [*([(times, places)] if times else []), *once(places[:left])]

    def _share_groups(self, bound: int) -> list[list[int]]:
        """Mixed mode: a hash says first, by its rest modulo ``bound``, which kind of server, then which."""
        if len(set(self._shares)) < 2:
            return [self._used]
        kinds = sorted({self._shares[server] for server in self._used}, reverse=True)
        groups = [[server for server in self._used if self._shares[server] == share] for share in kinds]
        found: list[list[int]] = []
        below = Fraction(0)
        for share, group in zip(kinds, groups, strict=True):
            below += len(group) * share
            found += [group] * (math.ceil(below * bound) - len(found))
        return found

    def _hashed_place(self, tensor_id: int, index: int) -> Place:
        assert self._hash is not None
        value = self._hash(tensor_id << 16 | index) * self._coefficient & MASK
        group = self._groups[value % len(self._groups)]
        value //= len(self._groups)
        shards = self._places[group[value % len(group)]]
        return shards[value // len(group) % len(shards)]
