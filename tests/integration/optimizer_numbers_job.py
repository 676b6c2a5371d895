"""Every way to step with DistributedOptimizer beside one process that has the whole batch."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import training_job as job
from torch import nn

import byteps.torch as bps

MAX_NORM = 0.05


def alone(name: str, *, passes: int = 1, clip: bool = False) -> nn.Module:
    """What one process gets."""
    model = job.network()
    optimizer = job.OPTIMIZERS[name](model.parameters())
    for step in grouped(passes):
        optimizer.zero_grad()
        for images, labels in step:
            (job.loss_of(model, images, labels) / passes).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
    return model


def grouped(passes: int) -> Any:
    all_batches = iter(job.batches(job.STEPS * passes))
    return iter(lambda: list(itertools.islice(all_batches, passes)), [])


def together(
    name: str, *, passes: int = 1, clip: bool = False, set_to_none: bool = True, **options: Any
) -> nn.Module:
    """What the job gets, each rank with its part of every batch."""
    model = job.network()
    if bps.rank() > 0:
        for parameter in model.parameters():
            parameter.data.add_(1.0)  # the broadcast makes it right
    optimizer = bps.DistributedOptimizer(
        job.OPTIMIZERS[name](model.parameters()),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)
    for step in grouped(passes):
        optimizer.zero_grad(set_to_none=set_to_none)
        for images, labels in step:
            mine = (job.share(each, bps.rank(), bps.size()) for each in (images, labels))
            (job.loss_of(model, *mine) / passes).backward()
        if clip:
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    assert model.unused.weight.grad is None  # as in one process: weight decay must not touch it
    assert isinstance(optimizer, type(job.OPTIMIZERS[name](model.parameters())))
    return model


def with_closure() -> nn.Module:
    model = job.network()
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    )
    for images, labels in job.batches():

        def closure(images: torch.Tensor = images, labels: torch.Tensor = labels) -> torch.Tensor:
            optimizer.zero_grad()
            loss = job.loss_of(model, *(job.share(each, bps.rank(), bps.size()) for each in (images, labels)))
            loss.backward()
            return loss

        assert optimizer.step(closure) is not None
    return model


def lbfgs(distributed: bool) -> nn.Module:
    """In float64: its first steps divide small differences of gradients by each other."""
    model = job.network().double()
    optimizer: Any = torch.optim.LBFGS(
        [p for p in model.parameters() if p.requires_grad],
        lr=0.5,
        max_iter=4,
        line_search_fn="strong_wolfe",
    )
    images, labels = next(job.batches())
    images = images.double()
    if distributed:
        optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        images, labels = (job.share(each, bps.rank(), bps.size()) for each in (images, labels))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = job.loss_of(model, images, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return model


def worker() -> dict[str, tuple[str, float]]:
    """By way: the digest of the parameters, and how far they are from those of one process."""
    torch.set_num_threads(1)
    bps.init()
    found: dict[str, tuple[nn.Module, nn.Module]] = {}
    for name in job.OPTIMIZERS:
        found[name] = (together(name), alone(name))
    found["two passes"] = (together("Adam", passes=2), alone("Adam", passes=2))
    found["clipping"] = (together("AdamW", clip=True), alone("AdamW", clip=True))
    sgd = alone("SGD with momentum")
    found["zeroed gradients"] = (together("SGD with momentum", set_to_none=False), sgd)
    found["closure"] = (with_closure(), sgd)
    found["LBFGS"] = (lbfgs(True), lbfgs(False))
    return {
        name: (job.digest(model), job.difference(model, wanted)) for name, (model, wanted) in found.items()
    }
