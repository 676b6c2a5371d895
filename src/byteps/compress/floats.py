"""The arrays that codecs work on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Floats"]

Floats = npt.NDArray[np.float32]
