"""Nesterov momentum, which a worker applies before error feedback.

    m = mu * m + g
    g = g + mu * m

Y. Nesterov (1983), in the form that frameworks use: Sutskever et al., "On the importance of initialization
and momentum in deep learning" (ICML 2013). Weight decay is added to g before.
"""

from __future__ import annotations

import numpy as np

from byteps.compress.reference.arrays import Floats

__all__ = ["nesterov"]


def nesterov(m: Floats, g: Floats, mu: float) -> tuple[Floats, Floats]:
    """The new m and the new g; every product and sum is rounded to float32."""
    with np.errstate(all="ignore"):
        m = np.float32(mu) * m + g
        return m, g + np.float32(mu) * m
