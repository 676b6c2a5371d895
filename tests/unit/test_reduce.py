"""The sums of the native core, bit for bit against NumPy: every dtype, any bytes, any number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from byteps import _core
from byteps.tensor import dtypes

Array = npt.NDArray[Any]

# NumPy has no bfloat16: its arrays are the bits, as uint16.
STORED = {name: np.dtype(np.uint16 if name == "bfloat16" else name) for name in dtypes.NAMES}


def up(name: str, array: Array) -> Array:
    """The values to compute with: float32 for half types."""
    if name == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if name == "float16" else array


def down(name: str, values: Array) -> Array:
    """The values as they are stored: half types rounded to nearest, ties to even."""
    if name == "bfloat16":
        bits = values.view(np.uint32)
        rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)
    return values.astype(np.float16) if name == "float16" else values


def quotient(values: Array, divisor: int) -> Array:
    """IEEE division of floats; integers truncated toward zero, in Python's numbers that cannot overflow."""
    if values.dtype.kind == "f":
        divided: Array = values / values.dtype.type(divisor)
        return divided
    whole = [abs(int(v)) // divisor * (-1 if v < 0 else 1) for v in values]
    return np.array(whole, dtype=values.dtype)


def oracle(name: str, parts: list[Array], divisor: int) -> Array:
    """The sum of the parts in their order, divided: what a server must answer."""
    with np.errstate(all="ignore"):
        total = up(name, parts[0])
        for part in parts[1:]:
            total = total + up(name, part)
        return down(name, quotient(total, divisor))


def assert_same_bits(name: str, actual: Array, expected: Array) -> None:
    """Equal bits, or a NaN in both places (which NaN it is, no processor promises)."""
    actual_up, expected_up = up(name, actual), up(name, expected)
    if actual_up.dtype.kind == "f":
        both_nan = np.isnan(actual_up) & np.isnan(expected_up)
        actual, expected = actual[~both_nan], expected[~both_nan]
    bits = f"u{actual.itemsize}"
    np.testing.assert_array_equal(actual.view(bits), expected.view(bits))


def summed(name: str, parts: list[Array], divisor: int = 1) -> Array:
    result = np.empty_like(parts[0])
    addresses = [part.ctypes.data for part in parts]
    _core.reduce_sum_contributions(dtypes.NUMBERS[name], addresses, result.ctypes.data, result.size, divisor)
    return result


@st.composite
def contributions(draw: st.DrawFn, parts: st.SearchStrategy[int]) -> tuple[str, list[Array]]:
    """A dtype and arrays of any bytes at all, so that infinities, NaNs and denormals come by themselves."""
    name = draw(st.sampled_from(dtypes.NAMES))
    count, elements = draw(parts), draw(st.integers(0, 70))
    size = elements * STORED[name].itemsize
    part = st.binary(min_size=size, max_size=size).map(lambda data: np.frombuffer(data, STORED[name]))
    return name, [draw(part) for _ in range(count)]


divisors = st.one_of(st.integers(1, 9), st.integers(1, 2**32 - 1))


@settings(deadline=None)
@given(contributions(st.integers(1, 5)), divisors)
def test_a_server_sums_and_averages_as_numpy_does(case: tuple[str, list[Array]], divisor: int) -> None:
    name, parts = case
    assert_same_bits(name, summed(name, parts), oracle(name, parts, 1))
    assert_same_bits(name, summed(name, parts, divisor), oracle(name, parts, divisor))


@settings(deadline=None)
@given(contributions(st.just(2)), divisors)
def test_add_and_average_in_place(case: tuple[str, list[Array]], divisor: int) -> None:
    name, (first, second) = case
    data = first.copy()
    _core.reduce_add(dtypes.NUMBERS[name], data.ctypes.data, second.ctypes.data, data.size)
    assert_same_bits(name, data, oracle(name, [first, second], 1))
    data = first.copy()
    _core.reduce_average(dtypes.NUMBERS[name], data.ctypes.data, data.size, divisor)
    assert_same_bits(name, data, oracle(name, [first], divisor))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_half_value_is_summed_and_rounded_once(name: str, ranks: int) -> None:
    every = np.arange(65536, dtype=np.uint16)
    others = [np.random.default_rng(rank).permutation(every) for rank in range(1, ranks)]
    parts = [bits.view(STORED[name]) for bits in (every, *others)]
    assert_same_bits(name, summed(name, parts), oracle(name, parts, 1))
    assert_same_bits(name, summed(name, parts, ranks), oracle(name, parts, ranks))


@pytest.mark.parametrize("name", dtypes.NAMES)
def test_a_contribution_may_lie_at_any_address(name: str) -> None:
    stored = STORED[name]
    rng = np.random.default_rng(7)
    room = np.frombuffer(rng.bytes(1001 * stored.itemsize), np.uint8)
    parts = [room[offset : offset + 1000 * stored.itemsize].view(stored) for offset in range(stored.itemsize)]
    assert_same_bits(name, summed(name, parts, 3), oracle(name, [part.copy() for part in parts], 3))


def test_three_halves_that_a_rounding_after_each_term_would_lose() -> None:
    parts = [np.array([value], np.float16) for value in (2048, 1, 1)]
    assert summed("float16", parts)[0] == 2050


def test_bad_arguments_are_named() -> None:
    data = np.zeros(4, np.float32)
    address = data.ctypes.data
    with pytest.raises(ValueError, match="dtype number 8"):
        _core.reduce_add(8, address, address, 4)
    with pytest.raises(ValueError, match="divisor"):
        _core.reduce_average(0, address, 4, 0)
    with pytest.raises(ValueError, match="divisor"):
        _core.reduce_sum_contributions(0, [address], address, 4, 0)
    with pytest.raises(ValueError, match="no contributions"):
        _core.reduce_sum_contributions(0, [], address, 4, 1)


def crc_by_definition(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=2000), st.integers(0, 2000))
@example(b"123456789", 4)
def test_crc32c_matches_its_definition_and_chains(data: bytes, cut: int) -> None:
    expected = crc_by_definition(data)
    assert _core.crc32c(data) == expected
    assert _core.crc32c(data[cut:], _core.crc32c(data[:cut])) == expected


def test_crc32c_published_values() -> None:
    assert _core.crc32c(b"123456789") == 0xE3069283
    assert _core.crc32c(b"") == 0
