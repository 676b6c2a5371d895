"""This process's arena: memory that the other ranks of its machine can reach without a copy.

The arena belongs to the process and not to a membership, so arrays outlive ``shutdown()`` and serve the next
membership too. A forked child has no part in it: it must neither use nor free its parent's memory.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from byteps import _core
from byteps.control.shortage import explained, is_shortage

if TYPE_CHECKING:
    from byteps.tensor.arrays import Array

__all__ = ["Block", "empty", "process_arena"]

_SMALLEST = 64 << 20

_arena: _core.Arena | None = None
_lock = threading.Lock()


def process_arena() -> _core.Arena:
    """The arena, made at the first call. It is reserved as large as the machine's memory and takes none."""
    global _arena
    with _lock:
        if _arena is None:
            _arena = _reserve(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        return _arena


def _reserve(nbytes: int) -> _core.Arena:
    while True:
        try:
            return _core.Arena(nbytes)
        except OSError as error:  # a limit on address space (ulimit -v) or on the size of files
            if is_shortage(error):
                raise OSError(error.errno, f"shared memory: {explained(error)}") from None
            if nbytes < 2 * _SMALLEST:
                raise
            nbytes //= 2


def _forget() -> None:
    global _arena, _lock
    _arena, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


class Block:
    """Some bytes of the arena; given back when nothing refers to this object any more."""

    __slots__ = ("__array_interface__", "_arena", "_owner", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self._owner = os.getpid()
        self._arena = process_arena()
        self.nbytes = nbytes
        self.address = self._arena.allocate(nbytes)
        self.__array_interface__ = {
            "data": (self.address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "address") and os.getpid() == self._owner:
            self._arena.free(self.address)


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
    """An array whose memory the ranks of this machine share; its values are not set.

    Push-pull of such an array on one machine copies nothing: the sum is made where the arrays lie. It works
    before ``init()``, and is an ordinary array in every other respect.
    """
    import numpy as np

    wanted = np.dtype(dtype)
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    count = int(np.prod(dims, dtype=np.int64)) if dims else 1
    if wanted.hasobject or count < 0:
        raise ValueError(f"empty: shape {shape!r} of dtype {wanted} has no plain memory")
    if count == 0:
        return np.empty(dims, wanted)
    array: Array = np.asarray(Block(count * wanted.itemsize)).view(wanted).reshape(dims)
    return array
