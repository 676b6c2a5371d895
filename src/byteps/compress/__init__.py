"""Gradient compression: its parameters, and a readable NumPy reference of every codec.

What travels is made by the native core (``native/compress``); ``reference`` says what it must make, bit for
bit. docs/compression.md says which codec is for what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from byteps.compress.params import CodecSpec, parse
from byteps.compress.rates import set_rates

if TYPE_CHECKING:
    from byteps.compress.custom import register

__all__ = ["CodecSpec", "parse", "register", "set_rates"]


def __getattr__(name: str) -> Any:
    if name == "register":  # needs NumPy, which the parameters alone do not
        from byteps.compress.custom import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
