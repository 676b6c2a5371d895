"""Numbers with units, read from the command line and written for people (1 KB = 1024 bytes here)."""

from __future__ import annotations

import re

__all__ = ["format_bytes", "format_count", "format_time", "parse_bytes"]

_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def parse_bytes(text: str) -> int:
    """``"64K"``, ``"64 KB"`` and ``"65536"`` are the same number.

    >>> parse_bytes("16MB")
    16777216
    """
    match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"a size in bytes expected, such as 4096, 64K or 16MB; got {text!r}")
    return int(match[1]) * _FACTORS[match[2].upper()]


def format_bytes(nbytes: float) -> str:
    """
    >>> format_bytes(65536), format_bytes(1000)
    ('64 KB', '1000 B')
    """
    for unit, factor in (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024)):
        if nbytes >= factor:
            return f"{nbytes / factor:.4g} {unit}"
    return f"{nbytes:.0f} B"


def format_time(seconds: float) -> str:
    """
    >>> format_time(0.0612), format_time(42e-6)
    ('61.2 ms', '42.0 us')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-5 else f"{seconds * 1e6:.1f} us"


def format_count(number: int, thing: str) -> str:
    """
    >>> format_count(1, "server"), format_count(2, "worker")
    ('1 server', '2 workers')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
