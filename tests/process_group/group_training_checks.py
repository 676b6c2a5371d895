"""What DDP does with the backend, with and without the communication hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from group_suite import Context, check, same, same_everywhere
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import byteps.torch as bps

STEPS, BATCH, SEED = 4, 6, 7
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}  # the batch is summed in another order


def network() -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(11, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))


def batch(step: int, size: int) -> tuple[Tensor, Tensor]:
    maker = torch.Generator().manual_seed(SEED + step)
    return torch.randn(size * BATCH, 11, generator=maker), torch.randn(size * BATCH, 3, generator=maker)


def train(model: nn.Module, c: Context, *, whole: bool) -> list[Tensor]:
    """Parameters after some steps on this rank's part of each batch, or on the whole of it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        inputs, targets = batch(step, c.size)
        own = slice(None) if whole else slice(c.rank * BATCH, (c.rank + 1) * BATCH)
        nn.functional.mse_loss(model(inputs[own]), targets[own]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(model.parameters())


def trains_like_one_process(c: Context, wrap: Callable[[nn.Module], nn.Module]) -> list[Tensor]:
    wanted = train(network(), c, whole=True)
    model = network()
    with torch.no_grad():  # DDP starts from rank 0's
        for parameter in model.parameters():
            parameter.add_(c.rank)
    found = train(wrap(model), c, whole=False)
    torch.testing.assert_close(found, wanted, **TOLERANCE)
    same_everywhere(found)
    return found


@check
def ddp_trains(c: Context) -> None:
    # Buckets of 1 kB: there are several, and they are made anew after the first step.
    trains_like_one_process(c, lambda model: DistributedDataParallel(model, bucket_cap_mb=0.001))
    trains_like_one_process(
        c, lambda model: DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    )


@check
def the_communication_hook_trains(c: Context) -> None:
    before = bps.counters()["operations"]
    kinds: list[dict[str, Any]] = [
        {"process_group": dist.new_group(backend="gloo"), "bucket_cap_mb": 0.001},
        {"gradient_as_bucket_view": True},
    ]
    for options in kinds:

        def wrap(model: nn.Module, options: dict[str, Any] = options) -> nn.Module:
            wrapped = DistributedDataParallel(model, **options)
            wrapped.register_comm_hook(bps.CommHookState(), bps.push_pull_hook)
            return wrapped

        trains_like_one_process(c, wrap)
    assert bps.counters()["operations"] >= before + 2 * STEPS


@check
def two_models_with_hooks_at_once(c: Context) -> None:
    models = [DistributedDataParallel(nn.Linear(3, 2)) for _ in range(2)]
    for model in models:
        model.register_comm_hook(bps.CommHookState(), bps.push_pull_hook)
    ((models[0](torch.ones(1, 3) * c.rank)).sum() + models[1](torch.ones(1, 3)).sum()).backward()
    same(models[0].module.weight.grad, torch.full((2, 3), (c.size - 1) / 2))
    same(models[1].module.weight.grad, torch.ones(2, 3))


@check
def a_failing_hook_says_why(c: Context) -> None:
    model = DistributedDataParallel(nn.Linear(3 + c.rank, 2), init_sync=False)
    model.register_comm_hook(bps.CommHookState(name="differs"), bps.push_pull_hook)
    said = ""
    try:
        model(torch.ones(1, 3 + c.rank)).sum().backward()
    except Exception as error:
        said = str(error)
    dist.barrier()
    assert "differs.bucket.0" in said and "[8]" in said, said


@check
def ddp_without_synchronization_unused_parameters_and_buffers(c: Context) -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "by_one": nn.Linear(3, 2), "norm": nn.BatchNorm1d(2)})

    class Forward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            y = self.parts["used"](x)
            if c.rank == 0:
                y = y + self.parts["by_one"](x)
            return self.parts["norm"](y)

    wrapped = DistributedDataParallel(Forward(), find_unused_parameters=True)
    inputs = torch.arange(12.0).reshape(4, 3) * (c.rank + 1)
    with wrapped.no_sync():
        wrapped(inputs).square().sum().backward()
    wrapped(inputs).square().sum().backward()
    same_everywhere([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    wrapped(inputs)  # sends rank 0's buffers before
    assert model["norm"].num_batches_tracked.item() == 3


@check
def leaving_and_coming_back(c: Context) -> None:
    dist.destroy_process_group()
    bps.barrier()  # the membership goes on; rank 0 has closed the store that the others might find again
    dist.init_process_group("byteps")
    tensor = c.mine()
    dist.all_reduce(tensor)
    same(tensor, c.total())
