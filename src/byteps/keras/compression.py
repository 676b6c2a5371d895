"""Casts that halve what travels, whatever Keras runs on: ``Compression.none`` and ``Compression.fp16``."""

from __future__ import annotations

from typing import Any

__all__ = ["Cast", "Compression", "is_fp16"]


class Cast:
    """A cast to the dtype of this name for floating point gradients that are wider."""

    def __init__(self, dtype: str | None) -> None:
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"<byteps cast to {self.dtype}>" if self.dtype else "<byteps no cast>"


class Compression:
    """The choices for ``compression=``; ``fp16`` sends float32 and float64 as float16."""

    none = Cast(None)
    fp16 = Cast("float16")


def is_fp16(compression: Any) -> bool:
    """True for ``Compression.fp16`` of this module and of the plugin of a framework."""
    return "float16" in str(getattr(compression, "dtype", None) or "")
