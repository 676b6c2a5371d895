"""Give every rank the buffers of rank 0, in one message: running statistics of batch norms and the like."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from byteps.torch import memory
from byteps.torch.ops import broadcast
from byteps.worker import current

__all__ = ["Buffers"]

ROOT_RANK = 0


class Buffers:
    """The buffers of one module, and the memory that carries all of them together.

    A network has many buffers of a few hundred bytes each; one message for each would cost more than the
    bytes. They are looked up at each use, because a module may have replaced some.
    """

    def __init__(self, module: nn.Module, name: str, ignored: frozenset[str] = frozenset()) -> None:
        self._module = module
        self._name = name
        self._ignored = ignored
        self._kinds: list[tuple[torch.Size, torch.dtype]] = []
        self._flat = torch.empty(0, dtype=torch.uint8)
        self._views: list[Tensor] = []

    def broadcast(self) -> None:
        """Write the values of rank 0 into every other rank's buffers. All ranks must call it.

        With uneven data: those of the lowest rank that still has some.
        """
        found = [buffer for name, buffer in self._module.named_buffers() if name not in self._ignored]
        if not found:
            return
        found.sort(key=lambda buffer: -buffer.element_size())  # so that all of them are aligned
        if [(buffer.shape, buffer.dtype) for buffer in found] != self._kinds:
            self._lay_out(found)
        # Through .data: a graph that has saved a buffer keeps the right to use it, as with torch's own
        # DistributedDataParallel. Two forward passes before one backward pass depend on that.
        session = current.required("broadcast of buffers")
        root = ROOT_RANK if session.joining is None else session.joining.lowest_active()
        if session.rank == root:
            for buffer, view in zip(found, self._views, strict=True):
                view.copy_(buffer.data)
            broadcast(self._flat, root, self._name)
        else:
            broadcast(self._flat, root, self._name)
            for buffer, view in zip(found, self._views, strict=True):
                buffer.data.copy_(view)

    def _lay_out(self, buffers: list[Tensor]) -> None:
        sizes = [buffer.numel() * buffer.element_size() for buffer in buffers]
        self._flat = memory.empty(sum(sizes), dtype=torch.uint8)
        pieces = torch.split(self._flat, sizes)
        self._kinds = [(buffer.shape, buffer.dtype) for buffer in buffers]
        self._views = [
            piece.view(dtype).view(shape) for piece, (shape, dtype) in zip(pieces, self._kinds, strict=True)
        ]
