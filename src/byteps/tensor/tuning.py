"""Numbers that tune speed, each with the measurement or the relation it comes from; nobody has a copy.

Nothing is refused because of them: limits do that. Those of the native core are in ``native/``, and ``_core``
gives out the lengths of pieces.
"""

from __future__ import annotations

__all__ = [
    "CORE_COPIES_BYTES",
    "OF_EQUAL_SHARES",
    "OF_SMALLEST_SHARE",
    "SPIN_NS",
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

# ---- ranks of one machine ----

# How long a rank looks for the others before it sleeps (``worker/spinning.py``). To sleep and be woken takes
# 20 to 30 us: a sum of 4 KB of two ranks on two cores took 28 us without spinning and with 5 or 10 us of it,
# 3.4 us with 20, 50 and 100 us. Twice what it saves, so that a slower processor gains, too.
SPIN_NS = 50_000

# ---- plugins ----

# Neighbours in a TensorFlow graph begin in one operation as long as they are one partition together, because
# TensorFlow takes 0.1 ms to call Python; not more, because the first waits until the last is computed.
TOGETHER_BYTES = USUAL_BYTES
TOGETHER_TENSORS = 16

# Up to here the core copies a gradient of PyTorch. Above this the copy takes longer than the call, and torch
# does it without holding the interpreter's lock.
CORE_COPIES_BYTES = 65_536
