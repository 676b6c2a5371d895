"""The bound of ``bps bench local`` from Python: the buffers of all processes in one piece of shared memory.

The bound itself is native/bench/plain_memory.h. The director makes the memory, without a name, and every
member inherits its descriptor.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from typing import Any

import numpy as np

__all__ = ["SharedBuffers", "make_memory"]

_PAGE_BYTES = 2 * 1024**2  # huge ones, where the kernel gives them
_BARRIER_BYTES = _PAGE_BYTES  # only a few bytes of it are used
TIMEOUT_S = 60.0

Array = np.ndarray[Any, np.dtype[np.float32]]


def _stride(capacity_bytes: int) -> int:
    """Bytes from one buffer to the next: whole pages, so that no page is shared by two buffers."""
    return -(-capacity_bytes // _PAGE_BYTES) * _PAGE_BYTES


def _total(ranks: int, capacity_bytes: int) -> int:
    return _BARRIER_BYTES + ranks * _stride(capacity_bytes)


def make_memory(ranks: int, capacity_bytes: int) -> int:
    """A descriptor of zeroed shared memory for buffers of this size; it is gone with its last user."""
    fd = os.memfd_create("byteps-bench", os.MFD_CLOEXEC)
    os.ftruncate(fd, _total(ranks, capacity_bytes))
    return fd


class SharedBuffers:
    """The view of one process."""

    def __init__(self, fd: int, ranks: int, capacity_bytes: int) -> None:
        from byteps import _core

        self._sum = _core.plain_memory
        self._map = mmap.mmap(fd, _total(ranks, capacity_bytes))
        with contextlib.suppress(OSError):  # a kernel without huge pages for shared memory: small ones
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._starts = [_BARRIER_BYTES + rank * _stride(capacity_bytes) for rank in range(ranks)]
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def array(self, rank: int, elements: int) -> Array:
        """The first elements of a rank's buffer."""
        return np.frombuffer(self._map, np.float32, elements, self._starts[rank])

    def sum(self, rank: int, nbytes: int, rounds: int) -> None:
        """Rounds of the bound in the place of ``rank``; returns when all have ended the last one."""
        buffers = [self._base + start for start in self._starts]
        self._sum(buffers, rank, nbytes, rounds, barrier=self._base, timeout_s=TIMEOUT_S)
