"""Casts that halve what travels: ``Compression.none`` and ``Compression.fp16``.

A gradient is cast before it is pushed, summed in the smaller type, and cast back where it lands. The codecs
of ``compression_params`` are another thing: they work inside the core.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Cast", "Compression"]


class Cast:
    """A cast to ``dtype`` for floating point tensors that are wider; others travel as they are."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.dtype = dtype

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype in which a tensor of ``dtype`` travels."""
        if self.dtype is None or not dtype.is_floating_point or dtype.itemsize <= self.dtype.itemsize:
            return dtype
        return self.dtype

    def compress(self, tensor: Tensor) -> tuple[Tensor, torch.dtype]:
        """What travels for ``tensor``, and what ``decompress`` needs to know."""
        return tensor.to(self.wire_dtype(tensor.dtype)), tensor.dtype

    def decompress(self, tensor: Tensor, context: torch.dtype) -> Tensor:
        """A tensor of the dtype that was given to ``compress``."""
        return tensor.to(context)

    def __repr__(self) -> str:
        return f"<byteps cast to {self.dtype}>" if self.dtype else "<byteps no cast>"


class Compression:
    """The choices for ``compression=``; ``fp16`` sends float32 and float64 as float16."""

    none = Cast(None)
    fp16 = Cast(torch.float16)
