"""What a push-pull must do: every dtype and shape, rounding, many at once, in place."""

from __future__ import annotations

import random

import numpy as np
from suite import SHAPES, Context, check, in_place_check

from byteps.testing import exact


@check
def every_dtype(c: Context) -> None:
    for dtype in c.api.dtypes:
        for average in (True, False):
            got = c.bps.push_pull(c.mine((5, 7), dtype), average=average, name=c.name(dtype))
            c.expect(got, (5, 7), dtype, average=average)


@check
def every_shape(c: Context) -> None:
    for shape in SHAPES:
        for average in (True, False):
            tensor = c.mine(shape)
            before = c.api.bits(tensor).copy()
            got = c.bps.push_pull(tensor, average=average, name=c.name(shape))
            c.expect(got, shape, average=average)
            np.testing.assert_array_equal(c.api.bits(tensor), before)  # out of place


@check
def many_partitions(c: Context) -> None:
    for dtype, count in (("float32", 300_007), ("int8", 50_001), ("float16", 40_001), ("float64", 5_003)):
        got = c.bps.push_pull(c.mine((count,), dtype), average=False, name=c.name(dtype))
        c.expect(got, (count,), dtype, average=False)


@check
def not_contiguous(c: Context) -> None:
    whole = c.mine((6, 10))
    part = c.api.every_other_column(whole)
    got = c.bps.push_pull(part, average=False, name=c.name("columns"))
    wanted = exact.total(c.size, (6, 10))[:, ::2]
    np.testing.assert_array_equal(c.api.values(got), wanted)
    got = c.bps.push_pull(c.api.transposed(whole), average=False, name=c.name("transposed"))
    np.testing.assert_array_equal(c.api.values(got), exact.total(c.size, (6, 10)).T)


@check
def integers_round_toward_zero(c: Context) -> None:
    for dtype in ("int8", "int32", "int64"):
        # Sums of -1, 1 and 2 less than a multiple of the size, on both sides of zero.
        sums = np.array([-1, 1, c.size - 1, 1 - c.size, 2 * c.size - 1, 1 - 2 * c.size])
        mine = sums if c.rank == c.size - 1 else np.zeros_like(sums)
        got = c.bps.push_pull(c.api.make(mine, dtype), name=c.name(dtype))
        np.testing.assert_array_equal(c.api.values(got), np.trunc(sums / c.size))


@check
def halves_are_rounded_once(c: Context) -> None:
    # The sum leaves the range of float16, the average does not.
    got = c.bps.push_pull(c.api.make(np.array([60_000]), "float16"), name=c.name("range"))
    assert c.api.values(got).tolist() == [60_000.0]
    for dtype, large in (("float16", 2048), ("bfloat16", 256)):
        if dtype in c.api.dtypes:
            # Each 1 alone is half a unit in the last place of ``large`` and would be rounded away.
            mine = np.array([large if c.rank == 0 else 1])
            got = c.bps.push_pull(c.api.make(mine, dtype), average=False, name=c.name("last place", dtype))
            ones = c.size - 1
            assert c.api.values(got).tolist() == [large + ones - ones % 2]


@check
def many_at_once(c: Context) -> None:
    shapes = [(index % 50 + 1,) for index in range(300)]
    handles = [
        c.bps.push_pull_async(c.mine(shape, salt=i), average=False, name=c.name(i), priority=i % 7 - 3)
        for i, shape in enumerate(shapes)
    ]
    for i in reversed(range(len(shapes))):
        c.expect(c.bps.synchronize(handles[i]), shapes[i], average=False, salt=i)


@check
def one_name_many_times_in_flight(c: Context) -> None:
    handles = [
        c.bps.push_pull_async(c.mine((501,), salt=i), average=bool(i % 2), name=c.name("x"))
        for i in range(12)
    ]
    for i, handle in enumerate(handles):
        c.expect(c.bps.synchronize(handle), (501,), average=bool(i % 2), salt=i)


@check
def ranks_use_their_own_order(c: Context) -> None:
    order = list(range(40))
    random.Random(c.rank).shuffle(order)
    handles = {i: c.bps.push_pull_async(c.mine((64,), salt=i), average=False, name=c.name(i)) for i in order}
    random.Random(c.rank + 100).shuffle(order)
    for i in order:
        c.expect(c.bps.synchronize(handles[i]), (64,), average=False, salt=i)


@in_place_check
def in_place(c: Context) -> None:
    for dtype in c.api.dtypes:
        for average in (True, False):
            tensor = c.mine((3, 700), dtype)
            got = c.bps.push_pull_inplace(tensor, average=average, name=c.name(dtype))
            assert got is tensor
            c.expect(tensor, (3, 700), dtype, average=average)
    for shape in SHAPES:
        tensor = c.mine(shape)
        c.bps.synchronize(c.bps.push_pull_async_inplace(tensor, average=False, name=c.name(shape)))
        c.expect(tensor, shape, average=False)


@in_place_check
def in_place_not_contiguous(c: Context) -> None:
    whole = c.mine((6, 10))
    part = c.api.every_other_column(whole)
    handle = c.bps.push_pull_async_inplace(part, average=False, name=c.name("columns"))
    assert c.bps.synchronize(handle) is part
    wanted = exact.contribution(c.rank, (6, 10))
    wanted[:, ::2] = exact.total(c.size, (6, 10))[:, ::2]
    np.testing.assert_array_equal(c.api.values(whole), wanted)


@in_place_check
def repeated_in_place(c: Context) -> None:
    tensor = c.mine((999,))
    for _ in range(6):
        c.bps.push_pull_inplace(tensor, average=False, name=c.name("x"))
    unit = exact.total(c.size, (999,)) * c.size**5
    np.testing.assert_array_equal(c.api.values(tensor), unit)
