"""Host memory between a device and the network: page-locked, and used again.

There is as much of it as the most that was in flight at once. A training step puts the same tensors in flight
as the one before, and locking pages is slow, so nothing is given back before the end.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Staging"]


class Staging:
    """A pool; for one thread."""

    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned
        self._free: list[Tensor] = []  # as bytes
        self._taken: dict[int, Tensor] = {}  # by address

    def take(self, like: Tensor) -> Tensor:
        """Host memory for the values of ``like``."""
        nbytes = like.numel() * like.element_size()
        # The smallest that is large enough; else the largest, which is too small, goes for a larger one.
        self._free.sort(key=Tensor.numel)
        fits = next((index for index, each in enumerate(self._free) if each.numel() >= nbytes), None)
        if fits is not None:
            memory = self._free.pop(fits)
        else:
            del self._free[-1:]
            memory = torch.empty(max(nbytes, 1), dtype=torch.uint8, pin_memory=self._pinned)
        self._taken[memory.data_ptr()] = memory
        return memory[:nbytes].view(like.dtype)

    def give(self, memory: Tensor) -> None:
        """Take back what ``take`` gave."""
        self._free.append(self._taken.pop(memory.data_ptr()))
