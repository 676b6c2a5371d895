"""What every interface must do in a job of every size; each check runs in all workers at once.

Data is ``byteps.testing.exact``: worker r contributes 4^r times a pattern, so a wrong sum tells who was
missing or counted twice, and results are compared without tolerance. Names of tensors begin with the
interface and the check, so that a check that fails leaves the others alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from interfaces import Array, Interface

from byteps import dtypes
from byteps.errors import ConfigError, DeclarationError, UnsupportedTensorError
from byteps.testing import exact

SHAPES = [(), (1,), (0,), (3, 0, 2), (7,), (2, 3, 5), (1, 1, 1, 1), (1025,), (33, 129)]


@dataclass
class Context:
    """What a check needs to know."""

    api: Interface
    check: str
    folder: Path  # seen by all ranks

    @property
    def bps(self) -> Any:
        return self.api.bps

    @property
    def rank(self) -> int:
        return int(self.bps.rank())

    @property
    def size(self) -> int:
        return int(self.bps.size())

    def name(self, *parts: object) -> str:
        return ".".join(map(str, (self.api.name, self.check, *parts)))

    def mine(self, shape: tuple[int, ...], dtype: str = "float32", salt: int = 0) -> Any:
        """This rank's contribution."""
        values = exact.contribution(self.rank, shape, signed=dtype != "uint8", salt=salt)
        return self.api.make(values, dtype)

    def expect(
        self, got: Any, shape: tuple[int, ...], dtype: str = "float32", *, average: bool, salt: int = 0
    ) -> None:
        """``got`` must be the exact sum or average."""
        signed = dtype != "uint8"
        if average:
            wanted = exact.average(self.size, shape, whole="int" in dtype, signed=signed, salt=salt)
        else:
            wanted = exact.total(self.size, shape, signed=signed, salt=salt)
        assert tuple(got.shape) == shape, (got.shape, shape)
        assert dtype in str(got.dtype), (got.dtype, dtype)
        np.testing.assert_array_equal(self.api.values(got), wanted)


CHECKS: dict[str, Callable[[Context], None]] = {}
IN_PLACE_CHECKS: set[str] = set()


def check(function: Callable[[Context], None]) -> Callable[[Context], None]:
    """Add a check to the suite."""
    CHECKS[function.__name__] = function
    return function


def in_place_check(function: Callable[[Context], None]) -> Callable[[Context], None]:
    """Add a check for interfaces whose tensors can be replaced in place."""
    IN_PLACE_CHECKS.add(function.__name__)
    return check(function)


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
    got = c.bps.push_pull(whole.T, average=False, name=c.name("transposed"))
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


@check
def another_shape_or_dtype_under_one_name(c: Context) -> None:
    uses = [((4,), "float32"), ((9, 2), "float32"), ((9, 2), "int32"), ((4,), "float32"), ((0,), "int8")] * 3
    handles = [
        c.bps.push_pull_async(c.mine(shape, dtype, i), average=False, name=c.name("x"))
        for i, (shape, dtype) in enumerate(uses)
    ]
    for i, (shape, dtype) in enumerate(uses):
        c.expect(c.bps.synchronize(handles[i]), shape, dtype, average=False, salt=i)


@check
def without_a_name(c: Context) -> None:
    for i, shape in enumerate([(3,), (4, 2), (3,), (), (4, 2), (3,)]):
        c.expect(c.bps.push_pull(c.mine(shape, salt=i), average=False), shape, average=False, salt=i)
    handles = [c.bps.push_pull_async(c.mine((8,), salt=i)) for i in range(5)]
    for i, handle in enumerate(handles):
        c.expect(c.bps.synchronize(handle), (8,), average=True, salt=i)
    root = c.size - 1
    got = c.bps.broadcast(c.mine((6,)), root)
    np.testing.assert_array_equal(c.api.values(got), exact.contribution(root, (6,)))


@check
def declared_ahead(c: Context) -> None:
    tensors = {c.name(i): c.mine((i,), salt=i) for i in range(20)}
    c.bps.declare(tensors)
    c.bps.declare(c.name("alone"), c.mine((2,)))
    c.bps.declare(c.name("only a name"))
    for i, (name, tensor) in enumerate(tensors.items()):
        c.expect(c.bps.push_pull(tensor, average=False, name=name), (i,), average=False, salt=i)


@check
def poll_tells_when_it_is_done(c: Context) -> None:
    handle = c.bps.push_pull_async(c.mine((10,)), name=c.name("x"))
    assert c.bps.poll(handle) in (True, False)
    first = c.bps.synchronize(handle)
    assert c.bps.poll(handle) is True
    assert c.bps.synchronize(handle) is first
    for nonsense in (None, 7, "handle"):
        for verb in (c.bps.poll, c.bps.synchronize):
            raises(TypeError, "push_pull_async", verb, nonsense)


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
            np.testing.assert_array_equal(c.api.bits(tensor), c.api.bits(got))  # in place


@check
def broadcast_of_every_shape(c: Context) -> None:
    for root in range(c.size):
        for shape in SHAPES:
            got = c.bps.broadcast(c.mine(shape), root, name=c.name(root, shape))
            assert tuple(got.shape) == shape
            np.testing.assert_array_equal(c.api.values(got), exact.contribution(root, shape))
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


@check
def barrier_waits_for_everybody(c: Context) -> None:
    for i in range(5):
        (c.folder / c.name(i, c.rank)).touch()
        c.bps.barrier()
        missing = [r for r in range(c.size) if not (c.folder / c.name(i, r)).exists()]
        assert not missing, f"left barrier {i} before ranks {missing}"


@check
def ranks_that_disagree_are_named(c: Context) -> None:
    if c.size == 1:
        return
    odd = c.rank == c.size - 1
    cases: dict[str, tuple[tuple[int, ...], str, list[str]]] = {
        "shape": ((3, 4) if odd else (4, 3), "float32", ["[3, 4]", "[4, 3]"]),
        "dtype": ((5,), "float64" if odd else "float32", ["float64", "float32"]),
    }
    for case, (shape, dtype, words) in cases.items():
        name = c.name(case)
        error = raises(DeclarationError, name, c.bps.push_pull, c.mine(shape, dtype), name=name)
        for word in (*words, f"worker {c.size - 1}"):
            assert word in str(error), f"{word!r} is not in: {error}"
        assert any(f"worker {rank}" in str(error) for rank in range(c.size - 1)), error
        raises(DeclarationError, name, c.bps.push_pull, c.mine(shape, dtype), name=name)  # and again
        c.bps.barrier()  # now all of them know
        # The job goes on, and so does the name, once ranks agree.
        c.expect(c.bps.push_pull(c.mine((2, 2)), name=name), (2, 2), average=True)


@check
def zero_elements_are_compared_too(c: Context) -> None:
    if c.size == 1:
        return
    tensor = c.mine((0,) if c.rank == 0 else (1,))
    c.bps.declare(c.name("only declared"), c.mine((0, 3)))
    if c.rank == 0:
        c.bps.declare(c.name("x"), tensor)
    c.bps.barrier()
    if c.rank != 0:
        raises(DeclarationError, "[0]", c.bps.push_pull, tensor, name=c.name("x"))
    c.bps.barrier()  # now rank 0 has been told, too
    raises(DeclarationError, "[1]", c.bps.push_pull, tensor, name=c.name("x"))


@check
def ranks_that_disagree_on_what_to_do_are_told(c: Context) -> None:
    if c.size == 1:
        return
    name = c.name("average")
    average = c.rank == 0
    error = raises(Exception, name, c.bps.push_pull, c.mine((5,)), name=name, average=average)
    assert "average" in str(error) and "sum" in str(error), error
    c.bps.barrier()


@check
def what_cannot_be_sent_is_refused(c: Context) -> None:
    raises(ConfigError, "root_rank", c.bps.broadcast, c.mine((3,)), c.size, name=c.name("root"))
    raises(
        ConfigError,
        "compression_params",
        c.bps.push_pull,
        c.mine((3,)),
        name=c.name("codec"),
        compression_params={"compressor": "onebit"},
    )
    for dtype in ("bool", "complex64", "int16"):
        tensor = c.api.make(np.zeros(3, np.int64), dtype)
        for verb in (c.bps.push_pull, c.bps.push_pull_async):
            error = raises(UnsupportedTensorError, dtype, verb, tensor, name=c.name(dtype))
            assert "bfloat16" in str(error) and c.name(dtype) in str(error)


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


def raises(
    kind: type[Exception], text: str, verb: Callable[..., object], *args: Any, **named: Any
) -> Exception:
    """Like pytest.raises, which a worker need not load."""
    try:
        verb(*args, **named)
    except kind as error:
        assert text in str(error), f"{text!r} is not in: {error}"
        return error
    raise AssertionError(f"expected {kind.__name__} with {text!r}, but nothing was raised")
