"""How large the partitions of a tensor are. Pure.

Each partition is on one server, so the cut decides how evenly servers are loaded and how many of them work on
one tensor. BYTEPS_PARTITION_BYTES says it for all tensors; unset, ``chosen`` says it for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

__all__ = ["MAX_PARTITIONS", "SPREAD_BYTES", "USUAL_BYTES", "aligned", "chosen"]

MAX_PARTITIONS = 1 << 20  # of one tensor: what a scheduler places and a worker takes
USUAL_BYTES = 4_096_000  # where nothing is gained by less; the accuracy of codecs was measured with it
SPREAD_BYTES = 65_536  # the least that is worth a server of its own
# Partitions are whole pieces (kFarPieceBytes): with a short one at the end of every partition, 4 + 2 machines
# took 1.26 of the optimum instead of 1.13.
PIECE_BYTES = 32_768
# How many partitions the smallest share of a tensor has. Equal shares come out with any number of them, and
# with several, servers begin to answer early. Of unequal ones the rounding is at most half a partition, so a
# link carries at most a thirtieth more than its share.
OF_EQUAL_SHARES, OF_SMALLEST_SHARE = 4, 16


def aligned(partition_bytes: int) -> int:
    """Partitions begin at an element of any type; the core cuts with the same rule.

    >>> aligned(4099), aligned(3)
    (4096, 8)
    """
    return max(8, partition_bytes // 8 * 8)


def chosen(nbytes: int, shares: Sequence[Fraction], piece: int = PIECE_BYTES) -> int:
    """What is best for a tensor that is not compressed: every server gets its share of it, in several parts.

    ``piece`` is what travels: larger on one machine, where more of them only cost more.

    >>> chosen(16 << 20, [Fraction(1, 4)] * 4), chosen(100_000, [Fraction(1, 4)] * 4)
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
