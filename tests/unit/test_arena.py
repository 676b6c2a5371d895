"""Arrays in the arena: ordinary arrays whose memory lives exactly as long as it is used."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

import byteps
from byteps.worker import arena


@pytest.mark.parametrize("shape", [(), 3, (4, 5), (0,), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int8", np.float16, np.int64])
def test_an_array_of_the_asked_shape(shape: object, dtype: object) -> None:
    array = byteps.empty(shape, dtype)  # type: ignore[arg-type]
    expected = np.empty(shape, dtype)  # type: ignore[call-overload]
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 7
    assert (array == 7).all()


def test_memory_is_given_back_with_the_last_view() -> None:
    gc.collect()
    before = arena.process_arena().used_bytes
    array = byteps.empty(1000)
    view = array[10:20]
    del array
    assert arena.process_arena().used_bytes > before
    del view
    assert arena.process_arena().used_bytes == before


def test_two_arrays_share_nothing() -> None:
    first, second = byteps.empty(100), byteps.empty(100)
    first[:], second[:] = 1, 2
    assert (first == 1).all() and not np.shares_memory(first, second)


def test_what_has_no_plain_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="object"):
        byteps.empty(3, object)
    with pytest.raises(ValueError, match="-1"):
        byteps.empty(-1)


def test_a_forked_child_leaves_the_memory_of_its_parent_alone() -> None:
    array = byteps.empty(1 << 20)
    array[:] = 5
    child = os.fork()
    if child == 0:
        status = 1
        try:
            del array
            gc.collect()
            own = byteps.empty(1 << 20)  # from an arena of its own
            own[:] = 9
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == 5).all()
