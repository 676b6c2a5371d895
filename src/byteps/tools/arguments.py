"""Command line values that several questions share; each function turns one text into a value."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from byteps.tools.units import parse_bytes

__all__ = ["list_of", "natural", "one_of", "positive", "size"]


def list_of(convert: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Values between commas, each once."""

    def parse(text: str) -> list[Any]:
        try:
            return list(dict.fromkeys(convert(part.strip()) for part in text.split(",")))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number expected, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number above 0 expected, got {text!r}")
    return int(text)


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(names)} expected, got {text!r}")
        return text

    return parse


def size(text: str) -> int:
    """Bytes of a tensor of float32."""
    nbytes = parse_bytes(text)
    if nbytes == 0 or nbytes % 4:
        raise argparse.ArgumentTypeError(f"whole float32 elements expected, 4 bytes each; got {nbytes} bytes")
    return nbytes
