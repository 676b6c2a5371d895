"""Gradient compression: its parameters, and a readable NumPy reference of every codec.

What travels is made by the native core (``native/compress``); ``reference`` says what it must make, bit for
bit.
"""

from byteps.compress.params import CodecSpec, parse

__all__ = ["CodecSpec", "parse"]
