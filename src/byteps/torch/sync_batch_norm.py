"""``SyncBatchNorm``: batch normalisation whose mean and variance are those of the batches of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from byteps.torch.differentiable import push_pull
from byteps.worker import current

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(nn.modules.batchnorm._BatchNorm):
    """In place of ``torch.nn.BatchNorm1d`` and the others; works on the CPU too, unlike torch's own.

        norm = hvd.SyncBatchNorm(64)

    In training, each forward pass is one small push-pull and each backward pass another, so all ranks must
    run both. Batches may differ in size. Evaluation and a job of one talk to nobody.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: expected an input of 2 dimensions or more, got {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        """What ``nn.BatchNorm1d`` makes of the batches of all ranks, this rank's part of it."""
        self._check_input_dim(input)
        use_batch = self.training or self.running_mean is None
        session = current.session
        if not use_batch or session is None or session.size == 1:
            plain: Tensor = super().forward(input)
            return plain
        mean, variance, count = self._of_all(input, session.rank, session.size)
        if self.training and self.track_running_stats:
            self._update(mean.detach(), variance.detach(), count)
        shape = (1, -1, *(1 for _ in range(input.dim() - 2)))
        result = (input - mean.view(shape).to(input.dtype)) * torch.rsqrt(
            variance.view(shape).to(input.dtype) + self.eps
        )
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result

    def _of_all(self, input: Tensor, rank: int, size: int) -> tuple[Tensor, Tensor, float]:
        """Mean, variance and number of elements of a channel, over all ranks.

        A rank tells its own mean and its squares around that: the sum of all squares less the square of the
        sum would lose its digits where the mean is large.
        """
        dims = [dim for dim in range(input.dim()) if dim != 1]
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        count = wide.numel() // wide.shape[1]
        mean = wide.mean(dims) if count else wide.sum(dims)
        shape = (1, -1, *(1 for _ in range(input.dim() - 2)))
        squares = (wide - mean.view(shape)).square().sum(dims)
        row = torch.cat([mean, squares, mean.new_tensor([count])])
        table = torch.zeros(size, row.numel(), dtype=row.dtype, device=row.device).index_copy(
            0, torch.tensor([rank], device=row.device), row.unsqueeze(0)
        )
        table = push_pull(table, average=False, name=None)
        channels = len(mean)
        means, all_squares, counts = table[:, :channels], table[:, channels:-1], table[:, -1:]
        total = counts.detach().sum()
        whole = (means * counts.detach()).sum(0) / total
        apart = ((means - whole).square() * counts.detach()).sum(0)
        return whole, (all_squares.sum(0) + apart) / total, float(total)

    def _update(self, mean: Tensor, variance: Tensor, count: float) -> None:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        assert self.running_mean is not None and self.running_var is not None
        share = 1.0 / float(self.num_batches_tracked or 1) if self.momentum is None else self.momentum
        unbiased = variance * (count / max(count - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
