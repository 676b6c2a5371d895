"""MXNet arrays as memory: dtype, address, and when it may be touched.

MXNet computes in the background and knows who reads and writes an array. The network works on the memory
itself, so an array is settled first: nothing that was asked for before still reads or writes it.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call

from byteps.errors import UnsupportedTensorError
from byteps.plugin.group import Item
from byteps.tensor import dtypes

__all__ = ["Memory", "item", "memory"]

_warned_of_sparse = False


class Memory(NamedTuple):
    """Where the elements of an array are, who owns them, and what is left to do when a result is there."""

    address: int
    owner: Any
    finish: Callable[[], object] | None


def item(array: Any, verb: str, name: str, *, as_bytes: bool = False) -> Item:
    """What the network must know of an array; ``as_bytes`` is for dtypes that are moved and not added."""
    dtype = np.dtype(array.dtype)
    found = "bfloat16" if dtype.names == ("bfloat16",) else dtype.name
    number = dtypes.NUMBERS.get(found)
    shape = tuple(array.shape)
    if number is None and as_bytes:
        return Item(name, dtypes.NUMBERS["uint8"], (int(np.prod(shape, dtype=np.int64)) * dtype.itemsize,))
    if number is None:
        raise UnsupportedTensorError(
            f"{verb} of {name or 'an array without a name'}: its dtype is {found}, expected {dtypes.VALID}; "
            "convert it with array.astype()"
        )
    return Item(name, number, shape)


def memory(array: Any, name: str) -> Memory:
    """The memory of an array, once nothing else uses it; of one that is not plain host memory a copy."""
    if array.stype != "default":
        _warn_of_sparse(name, array.stype)
        dense = array.tostype("default")
        return Memory(_settled(dense), dense, lambda: dense.tostype(array.stype).copyto(array))
    if array.context.device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
        host = array.as_in_context(mx.cpu())
        return Memory(_settled(host), host, lambda: host.copyto(array))
    return Memory(_settled(array), array, None)


def _settled(array: Any) -> int:
    # For writers and readers alike: the result is written to the same memory.
    check_call(_LIB.MXNDArrayWaitToWrite(array.handle))
    if array.size == 0:
        return 0
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value or 0


def _warn_of_sparse(name: str, stype: str) -> None:
    global _warned_of_sparse
    if not _warned_of_sparse:
        _warned_of_sparse = True
        warnings.warn(
            f"{name}: it is sparse ({stype}) and travels as a dense array, as does every other sparse array",
            stacklevel=3,
        )
