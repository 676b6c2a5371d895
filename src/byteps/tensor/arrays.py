"""Arrays as memory: turns NumPy arrays, buffer-protocol and DLPack objects into dtype, shape and address.

Only loaded when an array operation runs, because it loads NumPy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from byteps.errors import UnsupportedTensorError
from byteps.tensor import dtypes

__all__ = ["Array", "address", "contiguous", "dtype_number", "to_array"]

Array = np.ndarray[Any, Any]

_addressof = ctypes.addressof
_from_buffer = ctypes.c_char.from_buffer

# bfloat16 is not a type of NumPy: an extension's dtype of that name (ml_dtypes, JAX, TensorFlow) is added
# when seen.
_NUMBERS: dict[np.dtype[Any], int] = {
    np.dtype(name): number for name, number in dtypes.NUMBERS.items() if name != "bfloat16"
}


def to_array(tensor: object) -> Array:
    """``tensor`` as an array that shares its memory."""
    if isinstance(tensor, np.ndarray):
        if isinstance(tensor, np.ma.MaskedArray):
            raise UnsupportedTensorError("a masked array would lose its mask; pass array.filled()")
        return tensor.view(np.ndarray)
    try:
        return np.asarray(memoryview(tensor))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # no buffer protocol, or a format that NumPy does not know
        pass
    if hasattr(tensor, "__dlpack__"):
        try:
            return np.from_dlpack(tensor)
        except Exception as error:  # every framework has its own
            raise UnsupportedTensorError(
                f"{type(tensor).__name__} cannot be read as a NumPy array through DLPack: {error}; "
                "use the plugin of its framework, such as byteps.torch"
            ) from error
    if isinstance(tensor, np.generic):
        return np.asarray(tensor)
    raise UnsupportedTensorError(
        f"{type(tensor).__name__} is not an array: expected a NumPy array, or an object with the "
        "buffer protocol or DLPack; numpy.asarray() makes one from numbers and lists"
    )


def dtype_number(array: Array, verb: str, name: str | None) -> int:
    """The number of the element type on the wire; ``verb`` and ``name`` are for the error."""
    dtype = array.dtype
    number = _NUMBERS.get(dtype)
    if number is not None:
        return number
    if dtype.name == "bfloat16" and dtype.itemsize == 2 and dtype.isnative:
        return _NUMBERS.setdefault(dtype, dtypes.NUMBERS["bfloat16"])
    what = f"{dtype.name} in foreign byte order ({dtype.str})" if not dtype.isnative else str(dtype)
    raise UnsupportedTensorError(
        f"{verb} of {name or 'an array without a name'}: its dtype is {what}, expected {dtypes.VALID}, "
        "in the byte order of this machine; convert it with array.astype()"
    )


def contiguous(array: Array) -> Array:
    """``array`` itself when its elements lie in order without gaps, else a copy that does."""
    if array.flags.c_contiguous:
        return array
    return np.array(array, order="C", copy=True)


def address(array: Array) -> int:
    """Where the elements of a contiguous array begin."""
    try:
        # Three times faster than array.ctypes, which is made for other purposes.
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or a dtype without a buffer format
        return array.ctypes.data
