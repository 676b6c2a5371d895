"""A model whose gradients are averaged by the end of ``backward()``: ``DistributedDataParallel``."""

from __future__ import annotations

from byteps.torch.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
