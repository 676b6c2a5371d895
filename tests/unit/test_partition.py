"""How a tensor is cut for which nobody has said how."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byteps import _core
from byteps.scheduler.placement import Placement
from byteps.scheduler.shares import machine_shares
from byteps.tensor.partition import chosen
from byteps.tensor.tuning import SPREAD_BYTES, USUAL_BYTES

PIECE = _core.FAR_PIECE_BYTES
ROUNDING = 32_768


def equal(servers: int) -> list[Fraction]:
    return [Fraction(1, servers)] * servers


def mixed(workers: int, extra: int) -> list[Fraction]:
    """As many servers beside workers, and some on machines of their own."""
    x, y = machine_shares(workers, workers, extra)
    return [x] * workers + [y] * extra


@pytest.mark.parametrize("shares", [equal(2), equal(4), equal(7), mixed(4, 2), mixed(2, 1), mixed(8, 4)])
def test_at_most_a_quarter_of_the_smallest_share_and_at_least_64_kib(shares: list[Fraction]) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        nbytes = int(2 ** rng.uniform(0, 36))
        size = chosen(nbytes, shares, PIECE)
        smallest = nbytes * min(shares)
        assert SPREAD_BYTES <= size <= USUAL_BYTES and size % 8 == 0
        assert size <= max(smallest / 4, min(smallest, 4 * SPREAD_BYTES), SPREAD_BYTES) + 2 * ROUNDING


@pytest.mark.parametrize(
    "shares", [equal(2), equal(4), equal(8), mixed(4, 2), mixed(4, 3), mixed(2, 1), mixed(8, 4)]
)
def test_the_shares_come_out(shares: list[Fraction]) -> None:
    """No server gets more than a thirtieth above its share: the slowest link decides.

    Of small tensors with unequal shares 64 KiB are more than the part that would be needed.
    """
    for megabytes in (16, 17, 64, 100, 1000) if len(set(shares)) > 1 else (1, 4, 7, 16, 17, 64, 100, 1000):
        nbytes = megabytes << 20
        placement = Placement([1] * len(shares), shares=shares)
        placement.place(0, nbytes, placement.partition_bytes(nbytes))
        for (load,), share in zip(placement.loads, shares, strict=True):
            assert load <= nbytes * share * Fraction(31, 30) + 2 * ROUNDING, megabytes


def test_a_megabyte_is_spread_over_all_servers() -> None:
    placement = Placement([1] * 4)
    placement.place(0, 1 << 20, placement.partition_bytes(1 << 20))
    assert placement.loads == [[1 << 18]] * 4


def test_one_server_has_nobody_to_share_with() -> None:
    assert (
        chosen(1 << 30, equal(1), PIECE) == chosen(1 << 30, [Fraction(0), Fraction(1)], PIECE) == USUAL_BYTES
    )


def test_on_one_machine_nothing_is_gained_by_parts_of_pieces() -> None:
    piece = 384 << 10
    for nbytes in (1, 1 << 20, 3 << 20, 4_000_000, 1 << 30):
        assert chosen(nbytes, equal(4), piece) % piece == 0, nbytes
    assert chosen(1 << 20, equal(4), piece) == piece
