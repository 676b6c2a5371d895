"""Asynchronous mode in a job of one: the stored tensor that a server would hold.

A contribution is added to the stored value at once and the current value is returned; a broadcast sets it,
and so does the first contribution. Halves are added in float32 and rounded once, as a server does. Apart
from ``solo.py`` because only this needs NumPy.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from byteps.tensor import dtypes

if TYPE_CHECKING:
    from byteps.worker.solo import SoloTensor

__all__ = ["broadcast", "push_pull"]

_BFLOAT16 = dtypes.NUMBERS["bfloat16"]
_FLOAT16 = dtypes.NUMBERS["float16"]


def _view(tensor: SoloTensor, address: int) -> np.ndarray[Any, Any]:
    memory = memoryview((ctypes.c_char * tensor.nbytes).from_address(address)).cast("B")
    # NumPy has no bfloat16: its bits are handled as integers.
    name = "uint16" if tensor.dtype == _BFLOAT16 else dtypes.NAMES[tensor.dtype]
    return np.frombuffer(memory, dtype=np.dtype(name))


def _widen(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _narrow(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 to bfloat16 bits, round to nearest even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _sum(dtype: int, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if dtype == _BFLOAT16:
        return _narrow(_widen(a) + _widen(b))
    wide = np.float32 if dtype == _FLOAT16 else a.dtype
    total: np.ndarray[Any, Any] = np.add(a, b, dtype=wide).astype(a.dtype)
    return total


def push_pull(tensor: SoloTensor, src: int, dst: int) -> None:
    """Add the contribution at ``src`` to the stored value and write the sum to ``dst``."""
    contribution = _view(tensor, src)
    if tensor.stored is None:  # the first one is the base value
        tensor.stored = contribution.copy()
    else:
        with np.errstate(all="ignore"):
            tensor.stored = _sum(tensor.dtype, tensor.stored, contribution)
    ctypes.memmove(dst, tensor.stored.ctypes.data, tensor.nbytes)


def broadcast(tensor: SoloTensor, address: int) -> None:
    """The root's value becomes the stored value."""
    tensor.stored = _view(tensor, address).copy()
