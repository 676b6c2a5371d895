"""What a broadcast must do: the root's bits arrive, whatever the others held."""

from __future__ import annotations

import numpy as np
from interfaces import Array
from suite import SHAPES, Context, check

from byteps.tensor import dtypes
from byteps.testing import exact

# NaN with payloads and both signs, both zeros, infinities, the smallest subnormal, and plain numbers.
_STRANGE = {
    8: [0x7FF8_0000_DEAD_BEEF, 0x7FF0_0000_0000_0001, 0xFFF8_1234_0000_0000, 1 << 63, 0x7FF0 << 48, 1, 0],
    4: [0x7FC1_2345, 0x7F80_0001, 0xFFC0_0001, 0x8000_0000, 0x7F80_0000, 0xFF80_0000, 1, 0],
    2: [0x7E01, 0x7C01, 0xFE55, 0x8000, 0x7C00, 0x7FC1, 0xFF81, 1, 0],
    1: [0, 1, 0x7F, 0x80, 0xFF],
}


def _strange_bits(item_bytes: int, rank: int) -> Array:
    """Different on every rank, so that only the root's can be the answer."""
    bits = np.array(_STRANGE[item_bytes] * 7, dtype=f"uint{8 * item_bytes}")
    return np.roll(bits, rank)


@check
def broadcast_moves_bits(c: Context) -> None:
    for root in range(c.size):
        for dtype in c.api.dtypes:
            item_bytes = dtypes.ITEM_BYTES[dtypes.NUMBERS[dtype]]
            tensor = c.api.from_bits(_strange_bits(item_bytes, c.rank), dtype)
            got = c.bps.broadcast(tensor, root, name=c.name(root, dtype))
            np.testing.assert_array_equal(c.api.bits(got), _strange_bits(item_bytes, root))
            if c.api.is_mutable:
                np.testing.assert_array_equal(c.api.bits(tensor), c.api.bits(got))  # in place


@check
def broadcast_of_every_shape(c: Context) -> None:
    for root in range(c.size):
        for shape in SHAPES:
            got = c.bps.broadcast(c.mine(shape), root, name=c.name(root, shape))
            assert tuple(got.shape) == shape
            np.testing.assert_array_equal(c.api.values(got), exact.contribution(root, shape))
        if not c.api.has_views:
            continue
        whole = c.mine((6, 10))
        c.bps.broadcast(c.api.every_other_column(whole), root, name=c.name(root, "columns"))
        wanted = exact.contribution(c.rank, (6, 10))
        wanted[:, ::2] = exact.contribution(root, (6, 10))[:, ::2]
        np.testing.assert_array_equal(c.api.values(whole), wanted)
    large = c.bps.broadcast(c.mine((100_003,)), c.size - 1, name=c.name("large"))
    np.testing.assert_array_equal(c.api.values(large), exact.contribution(c.size - 1, (100_003,)))


@check
def one_name_for_both_verbs(c: Context) -> None:
    for i in range(4):
        got = c.bps.broadcast(c.mine((70,), salt=i), i % c.size, name=c.name("x"))
        np.testing.assert_array_equal(c.api.values(got), exact.contribution(i % c.size, (70,), salt=i))
        c.expect(c.bps.push_pull(c.mine((70,), salt=i), name=c.name("x")), (70,), average=True, salt=i)
