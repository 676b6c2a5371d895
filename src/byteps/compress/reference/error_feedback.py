"""Error feedback: what a codec loses in one round is added in the next.

    p = g + c * e
    send C(p)
    e = p - decode(C(p))

e is zero at the start. Karimireddy et al., "Error feedback fixes SignSGD" (arXiv 1901.09847); "corrected" for
a learning rate that changes: Zheng et al. (arXiv 1905.10936).
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference.arrays import Floats
from byteps.compress.reference.codecs import Codec

__all__ = ["encode_with_feedback", "factor"]


def factor(ef: str, lr_previous: float | None, lr_now: float | None) -> float:
    """c: 1 for "vanilla"; lr_previous / lr_now for "corrected" and "sparse", 1 where one is 0 or unknown.

    >>> factor("corrected", 0.1, 0.05), factor("vanilla", 0.1, 0.05)
    (2.0, 1.0)
    """
    if ef == "vanilla" or not lr_now or not lr_previous:
        return 1.0
    return lr_previous / lr_now


def encode_with_feedback(codec: Codec, g: Floats, c: float, e: Floats, round: int) -> tuple[bytes, Floats]:
    """The payload and the new error."""
    with np.errstate(all="ignore"):
        p = g + np.float32(c) * e
        payload = codec.encode(p, round)
        return payload, p - codec.decode(payload, round)
