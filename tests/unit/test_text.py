"""Text of others: nothing in it moves a cursor, begins a line or fills a screen."""

from __future__ import annotations

import random

import pytest

from byteps.observe.text import MAX_CHARACTERS, clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("worker 3 (host b) – größer", "worker 3 (host b) – größer"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b31m", r"\x9b31m"),
        ("one\r\n  two\n\nthree\tfour\u2028five", "one two three four five"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\ud800", r"\ud800"),
        ("\0", r"\x00"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


@pytest.mark.parametrize("character", ["x", "\x1b", "\n"])
def test_long_text_is_cut(character: str) -> None:
    for most in (10, MAX_CHARACTERS):
        shown = clean(character * 1_000_000, most)
        assert len(shown) <= most and shown.endswith("...")


def test_anything_becomes_printable_and_stays_as_it_is_then(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2_000):
        text = "".join(chr(rng.choice((rng.randrange(300), rng.randrange(0x110000)))) for _ in range(20))
        shown = clean(text)
        assert shown.isprintable() and clean(shown) == shown
