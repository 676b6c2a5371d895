"""The data that tests compare with must itself be right."""

from __future__ import annotations

import numpy as np
import pytest

from byteps.testing import exact


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_total_is_the_sum_of_contributions(size: int, signed: bool) -> None:
    for salt in range(9):
        parts = [exact.contribution(rank, (5, 6), signed=signed, salt=salt) for rank in range(size)]
        total = exact.total(size, (5, 6), signed=signed, salt=salt)
        np.testing.assert_array_equal(sum(parts), total)
        whole = exact.average(size, (5, 6), whole=True, signed=signed, salt=salt)
        np.testing.assert_array_equal(whole, np.trunc(total / size))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "float32"])
def test_sums_fit_every_dtype(dtype: str) -> None:
    total = exact.total(exact.MAX_RANKS, (100,), signed=dtype != "uint8")
    np.testing.assert_array_equal(total.astype(dtype).astype(np.int64), total)
    assert np.abs(total).max() <= 256  # whole numbers up to here are exact in bfloat16


def test_a_wrong_sum_tells_who_was_missing_or_counted_twice() -> None:
    unit = int(exact.pattern((1,))[0])
    parts = [int(exact.contribution(rank, (1,))[0]) for rank in range(3)]
    assert exact.counted(parts[0] + parts[2], unit) == [1, 0, 1]
    assert exact.counted(parts[0] + 2 * parts[1] + parts[2], unit) == [1, 2, 1]
