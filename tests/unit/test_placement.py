"""Placement of partitions: even by bytes, and the hashes that users of the original know."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byteps.scheduler.placement import HASHED, HASHES, Placement, djb2, naive, sdbm
from byteps.scheduler.shares import machine_shares
from byteps.tensor.partition import aligned
from byteps.tensor.runs import Place, count, spread, stored

STEP = 4_096_000


def test_aligned_is_never_zero() -> None:
    assert [aligned(n) for n in (1, 7, 8, 9, 4_096_001)] == [8, 8, 8, 8, 4_096_000]


def test_balanced_servers_differ_by_one_partition_at_most(seed: int) -> None:
    rng = random.Random(seed)
    for shards in ([1], [1, 1], [4, 4, 4], [2, 4, 1]):
        placement = Placement(shards)
        largest = 0
        for tensor in range(300):
            nbytes = rng.choice([4, 4096, 1_000_000, 64_000_000])
            largest = max(largest, min(nbytes, STEP))
            places = spread(placement.place(tensor, nbytes, STEP))
            assert len(places) == -(-nbytes // STEP)
            assert all(0 <= shard < shards[server] for server, shard in places)
            totals = [sum(loads) for loads in placement.loads]
            assert max(totals) - min(totals) <= largest
            for loads in placement.loads:
                assert max(loads) - min(loads) <= largest


class OneByOne:
    """The definition of ``balanced``: every partition by itself, in the order of the servers."""

    def __init__(self, shards: list[int], shares: list[Fraction]) -> None:
        self.loads = [[0] * each for each in shards]
        self._shares = shares

    def place(self, nbytes: int, step: int) -> list[Place]:
        found = []
        for start in range(0, nbytes, step):
            size = min(step, nbytes - start)
            used = [server for server, share in enumerate(self._shares) if share]
            server = min(used, key=lambda each: (sum(self.loads[each]) + size) / self._shares[each])
            shard = self.loads[server].index(min(self.loads[server]))
            self.loads[server][shard] += size
            found.append((server, shard))
        return found


def test_runs_are_the_places_that_one_partition_after_the_other_would_get(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        shards = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        shares = [Fraction(1, len(shards))] * len(shards)
        if rng.random() < 0.5:
            workers, extra = rng.randint(1, 3), rng.randint(0, 3)
            x, y = machine_shares(workers, workers, extra)
            shares = [x] * workers + [y] * extra
            shards = [rng.randint(1, 4) for _ in shares]
        placement, plain = Placement(shards, shares=shares), OneByOne(shards, shares)
        for tensor in range(15):
            nbytes = rng.choice([0, 1, 8, 100, rng.randint(1, 4_000)])
            runs = placement.place(tensor, nbytes, 8)
            places = plain.place(nbytes, 8)
            assert spread(runs) == places and count(runs) == len(places)
            if rng.random() < 0.3:
                placement.remove(runs, nbytes, 8)
                for index, (server, shard) in enumerate(places):
                    plain.loads[server][shard] -= min(8, nbytes - 8 * index)
            assert placement.loads == plain.loads


@pytest.mark.parametrize("method", ["balanced", *sorted(HASHES)])
def test_places_of_a_terabyte_are_few(method: str) -> None:
    """What the scheduler keeps and sends must not grow with the number of partitions."""
    placement = Placement([4] * 8, method)
    placement.place(0, 12_345, STEP)
    runs = placement.place(1, 1 << 40, STEP)
    assert count(runs) == -(-(1 << 40) // STEP)
    assert stored(runs) < (200 if method == "balanced" else 2 * HASHED)
    totals = [sum(loads) for loads in placement.loads]
    assert sum(totals) == (1 << 40) + 12_345
    if method == "balanced":
        assert max(totals) - min(totals) <= STEP


def test_hashes_repeat_where_they_cannot_tell_partitions_apart() -> None:
    runs = Placement([2, 2], "djb2").place(7, 8 * (2 * HASHED + 5) - 3, 8)
    places = spread(runs)
    assert [times for times, _ in runs] == [2, 1] and len(places) == 2 * HASHED + 5
    assert places[:HASHED] == places[HASHED : 2 * HASHED] and places[2 * HASHED :] == places[:5]


def test_removed_bytes_are_free_again() -> None:
    placement = Placement([1, 1])
    runs = placement.place(0, 100, 100)
    assert placement.place(1, 10, 100) == [(1, [(1, 0)])]
    placement.remove(runs, 100, 100)
    assert placement.place(2, 10, 100) == [(1, [(0, 0)])]
    assert placement.loads == [[10], [10]]


@pytest.mark.parametrize("method", ["balanced", *sorted(HASHES)])
def test_a_tensor_that_is_removed_leaves_nothing(method: str, seed: int) -> None:
    rng = random.Random(seed)
    placement = Placement([3, 2], method)
    live = []
    for tensor in range(100):
        nbytes = rng.choice([0, 5, 64, 1_000, 100_001])
        live.append((placement.place(tensor, nbytes, 64), nbytes))
    rng.shuffle(live)
    for runs, nbytes in live:
        placement.remove(runs, nbytes, 64)
    assert placement.loads == [[0, 0, 0], [0, 0]]


# Worked by hand from the definitions: h = 33 h + c from 5381, h = 65599 h + c from 0, over decimal digits.
def test_hashes_follow_their_definitions() -> None:
    assert naive(3 << 16 | 4) == 7 * 9973
    assert djb2(7) == 5381 * 33 + ord("7")
    assert djb2(42) == (5381 * 33 + ord("4")) * 33 + ord("2")
    assert sdbm(7) == ord("7")
    assert sdbm(42) == ord("4") * 65599 + ord("2")
    assert all(0 <= function(2**63 + 12345) < 2**64 for function in HASHES.values())


@pytest.mark.parametrize("method", sorted(HASHES))
def test_hashes_use_every_server_and_shard_and_repeat(method: str) -> None:
    first, second = (Placement([2, 2], method) for _ in range(2))
    places = [spread(first.place(tensor, 32, 8)) for tensor in range(64)]
    assert places == [spread(second.place(tensor, 32, 8)) for tensor in range(64)]
    assert {place for row in places for place in row} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_coefficient_changes_only_built_in() -> None:
    def places(method: str, coefficient: int) -> list[tuple[int, int]]:
        return spread(Placement([4, 4, 4], method, coefficient).place(5, 256, 8))

    assert places("built_in", 1) != places("built_in", 7)
    assert places("djb2", 1) == places("djb2", 7)
