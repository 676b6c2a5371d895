"""Casts that halve what travels: ``Compression.none`` and ``Compression.fp16``."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

__all__ = ["Cast", "Compression"]


class Cast:
    """A cast to ``dtype`` for floating point arrays that are wider; others travel as they are."""

    def __init__(self, dtype: Any = None) -> None:
        self.dtype = dtype

    def compress(self, array: Any) -> tuple[Any, Any]:
        """What travels for ``array``, and what ``decompress`` needs to know."""
        before = array.dtype
        if self.dtype is None or not jnp.issubdtype(before, jnp.floating) or before.itemsize <= 2:
            return array, before
        return array.astype(self.dtype), before

    def decompress(self, array: Any, context: Any) -> Any:
        """An array of the dtype that was given to ``compress``."""
        return array if array.dtype == context else array.astype(context)

    def __repr__(self) -> str:
        return f"<byteps cast to {self.dtype.__name__}>" if self.dtype else "<byteps no cast>"


class Compression:
    """The choices for ``compression=``; ``fp16`` sends float32 and float64 as float16."""

    none = Cast()
    fp16 = Cast(jnp.float16)
