"""How large the partitions of a tensor are. Pure.

Each partition is on one server, so the cut decides how evenly servers are loaded and how many of them work on
one tensor. BYTEPS_PARTITION_BYTES says it for all tensors; unset, ``chosen`` says it for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from byteps.tensor.tuning import OF_EQUAL_SHARES, OF_SMALLEST_SHARE, SPREAD_BYTES, USUAL_BYTES

__all__ = ["MAX_PARTITIONS", "aligned", "chosen"]

MAX_PARTITIONS = 1 << 20  # of one tensor: what a scheduler places and a worker takes


def aligned(partition_bytes: int) -> int:
    """Partitions begin at an element of any type; the core cuts with the same rule.

    >>> aligned(4099), aligned(3)
    (4096, 8)
    """
    return max(8, partition_bytes // 8 * 8)


def chosen(nbytes: int, shares: Sequence[Fraction], piece: int) -> int:
    """What is best for a tensor that is not compressed: every server gets its share of it, in several parts.

    ``piece`` is what travels: larger on one machine, where more of them only cost more. Partitions are whole
    pieces: with a short one at the end of each, 4 + 2 machines took 1.26 of the optimum instead of 1.13.

    >>> quarters = [Fraction(1, 4)] * 4
    >>> chosen(16 << 20, quarters, piece=32_768), chosen(100_000, quarters, piece=32_768)
    (1048576, 65536)
    """
    used = [share for share in shares if share]
    if len(used) < 2:
        return USUAL_BYTES
    smallest = int(nbytes * min(used))
    least, largest = max(SPREAD_BYTES, piece), USUAL_BYTES // piece * piece
    if len(set(used)) > 1:
        return min(largest, max(least, smallest // OF_SMALLEST_SHARE // piece * piece))
    parts = max(1, min(OF_EQUAL_SHARES, smallest // least), -(-smallest // largest))
    # Rounded up: rounded down, a short last partition would be one more than the shares have.
    return max(least, -(-smallest // (parts * piece)) * piece)
