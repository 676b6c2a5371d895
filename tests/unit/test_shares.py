"""Mixed mode: the shares are the paper's optimum, no other shares are better, and placement keeps to them."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byteps.scheduler.placement import Placement
from byteps.scheduler.shares import machine_shares, server_shares


def busiest_link(workers: int, beside: int, extra: int, x: Fraction, y: Fraction) -> Fraction:
    """Bytes out of the busiest machine for each byte of a gradient."""
    loads = [1 - x + (workers - 1) * x] if beside else []
    loads += [Fraction(1)] if beside < workers else []
    loads += [workers * y] if extra else []
    return max(loads)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_with_a_server_on_every_worker_machine_the_shares_are_those_of_the_paper(workers: int) -> None:
    for extra in range(workers + 1):
        x, y = machine_shares(workers, workers, extra)
        d = workers**2 + extra * workers - 2 * extra
        assert x == Fraction(workers - extra, d)
        if extra:
            assert y == Fraction(2 * (workers - 1), d)
        time = busiest_link(workers, workers, extra, x, y)
        assert time == Fraction(2 * workers * (workers - 1), d)


def test_no_other_shares_make_the_busiest_link_faster(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        workers = rng.randint(1, 9)
        beside, extra = rng.randint(0, workers), rng.randint(0, 12)
        if not beside + extra:
            continue
        x, y = machine_shares(workers, beside, extra)
        assert x >= 0 and y >= 0 and beside * x + extra * y == 1
        best = busiest_link(workers, beside, extra, x, y)
        if beside and extra:
            for step in range(101):
                other = Fraction(step, 100 * beside)
                rest = (1 - beside * other) / extra
                assert best <= busiest_link(workers, beside, extra, other, rest)


def test_machines_are_told_apart_by_their_hosts() -> None:
    quarter, half = Fraction(1, 4), Fraction(1, 2)
    assert server_shares(["a", "b"], ["a", "b", "c"], False) == [quarter, quarter, half]
    assert server_shares(["a", "b"], ["c", "a", "b"], False) == [half, quarter, quarter]
    assert server_shares(["a", "b"], ["a", "a", "b", "c"], False) == [quarter / 2, quarter / 2, quarter, half]
    assert server_shares(["a", "b"], ["c", "d"], False) == [half, half]  # none beside a worker
    assert server_shares(["a", "a"], ["a", "a"], False) == [half, half]  # a laptop
    assert server_shares(["a", "b"], ["a", "b", "c", "d"], False) == [0, 0, half, half]
    assert server_shares(["a", "b"], [], False) == []


def test_forced_the_last_servers_are_beside_the_workers() -> None:
    quarter, half = Fraction(1, 4), Fraction(1, 2)
    assert server_shares(["w1", "w2"], ["s1", "s2", "s3"], True) == [half, quarter, quarter]
    assert server_shares(["same", "same"], ["same"] * 3, True) == [half, quarter, quarter]
    assert server_shares(["a", "b"], ["a", "b", "c"], True) == [quarter, quarter, half]  # the names tell


def test_placement_keeps_to_the_shares(seed: int) -> None:
    rng = random.Random(seed)
    for workers, extra in [(2, 1), (4, 2), (8, 4), (4, 4)]:
        x, y = machine_shares(workers, workers, extra)
        shares = [x] * workers + [y] * extra
        placement = Placement([2] * len(shares), shares=shares)
        total = largest = 0
        for tensor in range(400):
            size, partitions = rng.choice([64, 4096, 65536]), rng.randint(1, 9)
            placement.place(tensor, size * partitions, size)
            total, largest = total + size * partitions, max(largest, size)
        for loads, share in zip(placement.loads, shares, strict=True):
            assert sum(loads) <= share * (total + len(shares) * largest)
            assert share or not sum(loads)


@pytest.mark.parametrize("method", ["naive", "djb2", "sdbm", "built_in"])
def test_hashes_keep_to_the_shares_roughly(method: str) -> None:
    x, y = machine_shares(4, 4, 2)
    shares = [x] * 4 + [y] * 2
    placement = Placement([1] * 6, method, shares=shares)
    for tensor in range(500):
        placement.place(tensor, 800, 100)
    for loads, share in zip(placement.loads, shares, strict=True):
        assert abs(sum(loads) / 400_000 - share) < 0.06
    again = [Placement([1] * 6, method, shares=shares).place(3, 40, 8) for _ in range(2)]
    assert again[0] == again[1]
