"""Memory of our own in which a gradient travels, shaped like its parameter."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["GradientBuffer", "memory_order"]

_users_of: Callable[[int], int] = torch._C._storage_Use_Count


class GradientBuffer:
    """A tensor with the shape of ``like`` and dimensions in ``order``, and whether others use its memory."""

    __slots__ = ("_storage", "_storage_id", "_users", "address", "tensor")

    def __init__(
        self, allocate: Callable[..., Tensor], like: Tensor, order: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        shape = like.shape
        flat = allocate(tuple(shape[dim] for dim in order), dtype=dtype)
        back = [order.index(dim) for dim in range(len(shape))]
        self.tensor = flat.permute(back) if back != sorted(back) else flat
        self.address = self.tensor.data_ptr()
        self._storage = self.tensor.untyped_storage()
        self._storage_id: int = self._storage._cdata
        self._users = 0
        del flat
        self._users = _users_of(self._storage_id)

    def is_free(self) -> bool:
        """True when nobody holds a tensor over this memory: no gradient of an earlier step, and no view."""
        return _users_of(self._storage_id) == self._users


def memory_order(parameter: Tensor) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost; in their own order if there are gaps."""
    strides = parameter.stride()
    order = tuple(sorted(range(len(strides)), key=lambda dim: (-strides[dim], dim)))
    if parameter.is_contiguous() or not parameter.permute(order).is_contiguous():
        return tuple(range(len(strides)))
    return order
