"""Numbers that tune speed, each with the measurement or the relation it comes from; nobody has a copy.

Nothing is refused because of them: limits do that. Those of the native core are in ``native/``, and ``_core``
gives out the lengths of pieces.
"""

from __future__ import annotations

__all__ = [
    "CORE_COPIES_BYTES",
    "OF_EQUAL_SHARES",
    "OF_SMALLEST_SHARE",
    "SPREAD_BYTES",
    "TOGETHER_BYTES",
    "TOGETHER_TENSORS",
    "USUAL_BYTES",
]

# ---- partitions: how a tensor is cut (``partition.py``) ----

# A partition where nothing is gained by smaller ones: with one server, and with a codec. The accuracy of
# codecs was measured with it (docs/compression.md).
USUAL_BYTES = 4_096_000

# The least that is worth a server of its own: two pieces between machines (``_core.FAR_PIECE_BYTES``).
SPREAD_BYTES = 65_536

# How many partitions the smallest share of a tensor has. Equal shares come out with any number of them, and
# with several, servers begin to answer early. Of unequal ones the rounding is at most half a partition, so a
# link carries at most a thirtieth more than its share.
OF_EQUAL_SHARES, OF_SMALLEST_SHARE = 4, 16

# ---- plugins ----

# Neighbours in a TensorFlow graph begin in one operation as long as they are one partition together, because
# TensorFlow takes 0.1 ms to call Python; not more, because the first waits until the last is computed.
TOGETHER_BYTES = USUAL_BYTES
TOGETHER_TENSORS = 16

# Up to here the core copies a gradient of PyTorch. Above this the copy takes longer than the call, and torch
# does it without holding the interpreter's lock.
CORE_COPIES_BYTES = 65_536
