"""Casts that halve what travels: ``Compression.none`` and ``Compression.fp16``.

A gradient is cast before it is pushed, summed in float32, and cast back where it lands. The codecs of
``compression_params`` are another thing: they work inside the core.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["Cast", "Compression"]


class Cast:
    """A cast to ``dtype`` for floating point tensors that are wider; others travel as they are."""

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = dtype

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """What travels for ``tensor``, and what ``decompress`` needs to know."""
        before = tensor.dtype
        if self.dtype is None or not before.is_floating or before.size <= self.dtype.size:
            return tensor, before
        return tf.cast(tensor, self.dtype), before

    def decompress(self, tensor: Any, context: Any) -> Any:
        """A tensor of the dtype that was given to ``compress``."""
        return tensor if tensor.dtype == context else tf.cast(tensor, context)

    def __repr__(self) -> str:
        return f"<byteps cast to {self.dtype.name}>" if self.dtype else "<byteps no cast>"


class Compression:
    """The choices for ``compression=``; ``fp16`` sends float32 and float64 as float16."""

    none = Cast()
    fp16 = Cast(tf.float16)
