"""What a check of the backend ``byteps`` is and what it gets. Each runs in all ranks at once.

Data is ``byteps.testing.exact``: rank r contributes 4^r times a pattern, and results are compared without
tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from byteps.testing import exact
from byteps.testing.checks import Checks

DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")


@dataclass
class Context:
    """What a check needs to know."""

    rank: int
    size: int
    folder: Path  # seen by all ranks

    def mine(self, shape: tuple[int, ...] = (5,), dtype: str = "float32", salt: int = 0) -> Tensor:
        """This rank's contribution."""
        return self.of(self.rank, shape, dtype, salt)

    def of(self, rank: int, shape: tuple[int, ...] = (5,), dtype: str = "float32", salt: int = 0) -> Tensor:
        """The contribution of some rank."""
        values = exact.contribution(rank, shape, signed=dtype != "uint8", salt=salt)
        return torch.from_numpy(np.array(values)).to(getattr(torch, dtype))

    def every(self, shape: tuple[int, ...] = (5,), dtype: str = "float32", salt: int = 0) -> list[Tensor]:
        """The contributions of all ranks."""
        return [self.of(rank, shape, dtype, salt) for rank in range(self.size)]

    def total(self, shape: tuple[int, ...] = (5,), dtype: str = "float32", salt: int = 0) -> Tensor:
        """The exact sum of them."""
        values = exact.total(self.size, shape, signed=dtype != "uint8", salt=salt)
        return torch.from_numpy(np.array(values)).to(getattr(torch, dtype))

    def average(self, shape: tuple[int, ...] = (5,), dtype: str = "float32") -> Tensor:
        """Their average as a push-pull makes it: rounded once, whole numbers toward zero."""
        values = exact.average(self.size, shape, whole="int" in dtype, signed=dtype != "uint8")
        return torch.from_numpy(np.array(values)).to(getattr(torch, dtype))


check = Checks()  # each takes a Context


def same(got: Any, wanted: Any) -> None:
    """Tensors of equal dtype, shape and values, or lists of them."""
    if isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for each, one in zip(got, wanted, strict=True):
            same(each, one)
        return
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def same_everywhere(tensors: list[Tensor]) -> None:
    """The tensors have the same bits on all ranks."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    gathered = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, flat)
    for other in gathered:
        same(flat, other)
