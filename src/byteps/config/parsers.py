"""Parsers of the values that an environment variable may hold; each one says what is valid.

Pure: text in, value out. A parser raises ``ValueError``; ``config.parse`` makes of it a ``ConfigError`` that
names the variable, the value and ``Parser.valid``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from byteps.config import endpoint

T = TypeVar("T")

MAX_PORT = 65535


@dataclass(frozen=True)
class Parser(Generic[T]):
    """How to read one kind of value."""

    parse: Callable[[str], T]
    valid: str  # completes the sentence "expected ..."


_SWITCH = dict.fromkeys(("0", "false", "no", "off"), False) | dict.fromkeys(("1", "true", "yes", "on"), True)


def _switch(text: str) -> bool:
    try:
        return _SWITCH[text.lower()]
    except KeyError:
        raise ValueError(text) from None


switch = Parser(_switch, "0 or 1")


def _integer(text: str) -> int:
    # int() also takes "1_000", "+5" and digits of other scripts; a typing error should not pass as a number.
    if not re.fullmatch(r"-?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def integer(low: int, high: int | None = None) -> Parser[int]:
    """A whole number from ``low`` to ``high`` (no upper limit when None)."""

    def parse(text: str) -> int:
        value = _integer(text)
        if value < low or (high is not None and value > high):
            raise ValueError(text)
        return value

    limit = f"of at least {low}" if high is None else f"from {low} to {high}"
    return Parser(parse, f"a whole number {limit}")


def optional(parser: Parser[T]) -> Parser[T | None]:
    """The same values, for a variable that has no default: unset is None."""
    return Parser(parser.parse, parser.valid)


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(text)
    return value


seconds = Parser(_seconds, "a number of seconds greater than 0")


_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGT])", re.IGNORECASE)
_RATE_UNIT = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def _rate(text: str) -> int:
    found = _RATE.fullmatch(text.strip())
    value = round(float(found[1]) * _RATE_UNIT[found[2].lower()]) if found else 0
    if not 0 < value <= 10**15:
        raise ValueError(text)
    return value


def _rates(text: str) -> tuple[int, int]:
    up, slash, down = text.replace("bit/s", "").partition("/")
    return _rate(up), _rate(down if slash else up)


rates = Parser(_rates, 'bits per second such as "10G", or "1G/200M" where up and down differ')


def choice(*words: str) -> Parser[str]:
    """One of some words, whatever their case; the value is spelled as given here."""
    canonical = {word.lower(): word for word in words}

    def parse(text: str) -> str:
        try:
            return canonical[text.lower()]
        except KeyError:
            raise ValueError(text) from None

    return Parser(parse, "one of " + ", ".join(words))


def matching(pattern: str, valid: str) -> Parser[str]:
    """Text that matches a regular expression as a whole."""
    expression = re.compile(pattern)

    def parse(text: str) -> str:
        if not expression.fullmatch(text):
            raise ValueError(text)
        return text

    return Parser(parse, valid)


host = Parser(endpoint.host, endpoint.HOST)

# Names of interfaces and files: no white space and no control characters; the system judges the rest.
word = matching(r"[^\s\x00-\x1f\x7f]+", "a word without white space")
path = matching(r"[^\x00-\x1f\x7f]+", "a path without control characters")
name = matching(r"[^\x00-\x1f\x7f]+", "a key or a tensor name without control characters")
job_name = matching(r"[A-Za-z0-9._:@-]{1,128}", "1 to 128 letters, digits or . _ : @ -")


def _span(text: str) -> tuple[int, int]:
    """``7`` or ``7-11`` as first and last."""
    first, dash, last = text.strip().partition("-")
    low = _integer(first)
    high = _integer(last) if dash else low
    if not 0 <= low <= high:
        raise ValueError(text)
    return low, high


def _port_range(text: str) -> range:
    low, high = _span(text)
    if high > MAX_PORT or (low == 0 and high != 0):
        raise ValueError(text)
    return range(low, high + 1)


port = integer(1, MAX_PORT)
port_range = Parser(_port_range, 'a port from 1 to 65535, a range such as "9100-9199", or 0 for any')

MAX_CORE = 65535  # far above any machine; keeps a mistyped range from filling memory


def _cores(text: str) -> tuple[int, ...]:
    cores: list[int] = []
    for part in text.split(","):
        low, high = _span(part)
        if high > MAX_CORE:
            raise ValueError(text)
        cores.extend(range(low, high + 1))
    return tuple(cores)


def _cores_per_rank(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(_cores(part) for part in text.split(":"))


cores = Parser(_cores, 'numbers and ranges such as "0,4-7"')
cores_per_rank = Parser(_cores_per_rank, 'numbers and ranges per rank, such as "1,4-5:20-25"')


def _devices(text: str) -> tuple[str, ...]:
    if text.lower() in ("all", "none", "void"):  # words of the container runtime: they name no single device
        return ()
    entries = tuple(part.strip() for part in text.split(","))
    if not all(entries):
        raise ValueError(text)
    return entries


devices = Parser(_devices, 'entries separated by commas, such as "0,1,2,3", or all, none, void')


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(word.isidentifier() for name in names for word in name.split(".")):
        raise ValueError(text)
    return names


modules = Parser(_modules, 'names of Python modules such as "mine,other.codecs"')


def _secret(text: str) -> bytes:
    return os.fsencode(text)


secret = Parser(_secret, "any text")
