"""Placement of partitions: even by bytes, and the hashes that users of the original know."""

from __future__ import annotations

import random

import pytest

from byteps.scheduler.placement import HASHES, Placement, aligned, cut, djb2, naive, sdbm


@pytest.mark.parametrize(
    ("nbytes", "partition", "sizes"),
    [(0, 8, []), (1, 8, [1]), (8, 8, [8]), (20, 8, [8, 8, 4]), (100, 4_096_000, [100]), (24, 15, [8, 8, 8])],
)
def test_cut(nbytes: int, partition: int, sizes: list[int]) -> None:
    assert cut(nbytes, partition) == sizes
    assert all(size % 8 == 0 for size in sizes[:-1])


def test_aligned_is_never_zero() -> None:
    assert [aligned(n) for n in (1, 7, 8, 9, 4_096_001)] == [8, 8, 8, 8, 4_096_000]


def test_balanced_servers_differ_by_one_partition_at_most(seed: int) -> None:
    rng = random.Random(seed)
    for shards in ([1], [1, 1], [4, 4, 4], [2, 4, 1]):
        placement = Placement(shards)
        largest = 0
        for tensor in range(300):
            sizes = cut(rng.choice([4, 4096, 1_000_000, 64_000_000]), 4_096_000)
            largest = max([largest, *sizes])
            places = placement.place(tensor, sizes)
            assert all(0 <= shard < shards[server] for server, shard in places)
            totals = [sum(loads) for loads in placement.loads]
            assert max(totals) - min(totals) <= largest
            for loads in placement.loads:
                assert max(loads) - min(loads) <= largest


def test_removed_bytes_are_free_again() -> None:
    placement = Placement([1, 1])
    places = placement.place(0, [100])
    assert placement.place(1, [10]) == [(1, 0)]
    placement.remove(places, [100])
    assert placement.place(2, [10]) == [(0, 0)]
    assert placement.loads == [[10], [10]]


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
    places = [first.place(tensor, [8] * 4) for tensor in range(64)]
    assert places == [second.place(tensor, [8] * 4) for tensor in range(64)]
    assert {place for row in places for place in row} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_coefficient_changes_only_built_in() -> None:
    def places(method: str, coefficient: int) -> list[tuple[int, int]]:
        return Placement([4, 4, 4], method, coefficient).place(5, [8] * 32)

    assert places("built_in", 1) != places("built_in", 7)
    assert places("djb2", 1) == places("djb2", 7)
