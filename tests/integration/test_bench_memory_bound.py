"""The memory bound sums the right bytes whatever the size, and ends when a process does not come."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from byteps import _core
from byteps.tools.bench import exact
from byteps.tools.bench.memory_bound import SharedBuffers, make_memory

TIMEOUT_S = 60


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("elements", [1, 7, 1024, 100_003])
def test_every_size_sums_for_every_rank(ranks: int, elements: int) -> None:
    # Threads with a mapping each stand for processes: the memory is shared by its descriptor all the same.
    fd, rounds = make_memory(ranks, elements * 4), 3
    try:
        views = [SharedBuffers(fd, ranks, elements * 4) for _ in range(ranks)]
    finally:
        os.close(fd)
    arrays = [view.array(rank, elements) for rank, view in enumerate(views)]
    with ThreadPoolExecutor(ranks) as pool:
        for rank, array in enumerate(arrays):
            exact.fill(array, rank)
        for future in [pool.submit(view.sum, rank, elements * 4, rounds) for rank, view in enumerate(views)]:
            future.result(TIMEOUT_S)
    for array in arrays:
        exact.check(array, ranks, rounds)


def test_a_process_that_does_not_come_is_an_error_and_no_hang() -> None:
    data, barrier = np.zeros(8, np.float32), np.zeros(2, np.uint32)
    buffers = [data.ctypes.data, data.ctypes.data]
    with pytest.raises(RuntimeError, match="1 of 2 processes came to the barrier within"):
        _core.plain_memory(buffers, 0, data.nbytes, 1, barrier.ctypes.data, timeout_s=0.01)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="got rank 2 of 2"):
        _core.plain_memory([0, 0], 2, 4, 1, 0, 1.0)
    with pytest.raises(ValueError, match="whole float32"):
        _core.plain_memory([0, 0], 0, 5, 1, 0, 1.0)
