"""Tensors in memory that the ranks of this machine share: ``empty`` and ``empty_like``.

A push-pull of such a tensor needs no copy on the way to the other ranks of its machine. The memory goes back
when the last tensor over it is gone.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import byteps

__all__ = ["empty", "empty_like"]


def empty(*shape: Any, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor with undefined values, as from ``torch.empty``, in memory that the ranks of a machine share.

        gradient = bps.empty(1000, 2048)
        flags = bps.empty((3, 5), dtype=torch.uint8)

    It is an ordinary CPU tensor of its dtype (default: PyTorch's), with no gradient.
    """
    sizes = torch.Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    return _empty(sizes, dtype or torch.get_default_dtype())


def empty_like(tensor: Tensor) -> Tensor:
    """A contiguous tensor of the shape and dtype of ``tensor`` from ``empty``."""
    return _empty(tensor.shape, tensor.dtype)


def _empty(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    # As bytes: bfloat16 is no dtype of NumPy. The tensor keeps the array alive, and the array its memory.
    return torch.from_numpy(byteps.empty((nbytes,), "uint8")).view(dtype).view(shape)
