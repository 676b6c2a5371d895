"""What ``DistributedDataParallel`` must do on two ranks; each check runs on both at once (test_ddp.py).

The oracle is exact: a gradient is computed here for the data of both ranks, and their sum in rank order
divided by two has the same bits as the average of a push-pull.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import byteps.torch as bps
from byteps.errors import ConfigError
from byteps.testing.checks import Checks
from byteps.torch.compression import Compression
from byteps.torch.parallel import DistributedDataParallel

check = Checks()
RANKS = 2
Loss = Callable[[nn.Module, int], Tensor]


def network(seed: int = 1, *, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    middle = nn.BatchNorm1d(6) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(5, 6), middle, nn.Linear(6, 3))


def data(rank: int, step: int = 0) -> Tensor:
    return torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * step + rank))


def plain_loss(model: nn.Module, rank: int, step: int = 0) -> Tensor:
    loss: Tensor = model(data(rank, step)).square().sum()
    return loss


def average_of(model: nn.Module, loss: Loss) -> list[Tensor | None]:
    """The gradients that both ranks must have, from a copy of the model."""
    found = []
    for rank in range(RANKS):
        mine = copy.deepcopy(model)
        mine.zero_grad()
        loss(mine, rank).backward()
        found.append([parameter.grad for parameter in mine.parameters()])
    return [_average(*pair) for pair in zip(*found, strict=True)]


def _average(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        only = second if first is None else first
        return None if only is None else only / RANKS
    return (first + second) / RANKS


def same(model: nn.Module, wanted: list[Tensor | None]) -> None:
    for (name, parameter), value in zip(model.named_parameters(), wanted, strict=True):
        if value is None or parameter.grad is None:
            assert value is None and parameter.grad is None, (name, value, parameter.grad)
        else:
            assert torch.equal(parameter.grad, value), (name, parameter.grad, value)


def averages(model: nn.Module, loss: Loss = plain_loss, **options: Any) -> DistributedDataParallel:
    """Wrap, run one backward pass, compare; for a model that is the same on both ranks."""
    wanted = average_of(model, loss)
    ddp = DistributedDataParallel(model, **options)
    loss(ddp, bps.rank()).backward()
    same(model, wanted)
    return ddp


@check
def starts_like_rank_0_and_averages() -> None:
    model = network(seed=bps.rank() + 1, norm=True)
    model[1].running_mean.fill_(bps.rank())
    ddp = DistributedDataParallel(model, device_ids=None, find_unused_parameters=True, bucket_cap_mb=25)
    root = network(seed=1, norm=True)
    root[1].running_mean.fill_(0)
    for name, value in root.state_dict().items():
        assert torch.equal(ddp.state_dict()[f"module.{name}"], value), name
    ddp.load_state_dict({f"module.{name}": value for name, value in root.state_dict().items()})
    assert ddp.module is model
    wanted = average_of(root, plain_loss)
    plain_loss(ddp, bps.rank()).backward()
    same(model, wanted)


@check
def trains_as_one_process_does() -> None:
    alone, model = network(), network()
    ddp = DistributedDataParallel(model)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01, momentum=0.9) for each in (alone, model)]
    for step in range(5):
        wanted = average_of(alone, lambda each, rank, step=step: plain_loss(each, rank, step))
        for parameter, value in zip(alone.parameters(), wanted, strict=True):
            parameter.grad = value
        optimizers[1].zero_grad(set_to_none=step % 2 == 0)
        plain_loss(ddp, bps.rank(), step).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(alone.parameters(), model.parameters(), strict=True))


@check
def no_sync_keeps_gradients_here() -> None:
    model = network()

    def both(each: nn.Module, rank: int) -> Tensor:
        return plain_loss(each, rank, 0) + plain_loss(each, rank, 1)

    ddp = DistributedDataParallel(model)
    local = copy.deepcopy(model)
    plain_loss(local, bps.rank()).backward()
    with ddp.no_sync():
        loss = plain_loss(ddp, bps.rank())
    loss.backward()  # the forward pass decides
    same(model, [parameter.grad for parameter in local.parameters()])
    plain_loss(ddp, bps.rank(), 1).backward()
    # Sums in another order than one graph would make them: not bit for bit.
    for parameter, value in zip(model.parameters(), average_of(model, both), strict=True):
        torch.testing.assert_close(parameter.grad, value, rtol=1e-5, atol=1e-6)


class Branches(nn.Module):
    """Rank r uses branch r; nobody uses the last one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.common = nn.Linear(5, 5)
        self.branches = nn.ModuleList(nn.Linear(5, 3) for _ in range(3))
        self.which = 0

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.branches[self.which](self.common(inputs))
        return result


@check
def finds_unused_parameters() -> None:
    def loss(model: nn.Module, rank: int) -> Tensor:
        getattr(model, "module", model).which = rank
        return plain_loss(model, rank)

    model = averages(Branches(), loss).module
    assert model.branches[2].weight.grad is None
    assert model.branches[1 - bps.rank()].weight.grad is not None


@dataclasses.dataclass
class Answer:
    first: Tensor
    rest: dict[str, list[Tensor]]


class Two(nn.Module):
    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 3)
        self.wrap = wrap

    def forward(self, inputs: Tensor) -> Any:
        return self.wrap(self.first(inputs), self.second(inputs))


class Opaque:
    def __init__(self, first: Tensor) -> None:
        self.first = first


@check
def only_a_part_of_the_outputs_is_used() -> None:
    def loss(model: nn.Module, rank: int) -> Tensor:
        total: Tensor = model(data(rank)).first.sum()
        return total

    for wrap in (
        lambda a, b: Answer(a, {"second": [b]}),
        lambda a, b: Opaque(a),  # nothing can be seen in it
    ):
        ddp = averages(Two(wrap), loss)
        assert ddp.module.second.weight.grad is None
        wanted = average_of(ddp.module, loss)  # and once more
        ddp.zero_grad()
        loss(ddp, bps.rank()).backward()
        same(ddp.module, wanted)


@check
def takes_the_buffers_of_rank_0_in_training() -> None:
    model = network(norm=True)
    ddp = DistributedDataParallel(model)
    norm, marks = model[1], []
    norm.register_forward_pre_hook(lambda *_: marks.append(norm.running_mean.clone()))
    for step in range(2):
        norm.running_mean.fill_(bps.rank() + step)
        norm.num_batches_tracked.fill_(7 * bps.rank())
        plain_loss(ddp, bps.rank()).backward()
        assert torch.equal(marks.pop(), torch.full((6,), float(step)))
    assert int(norm.num_batches_tracked) == 1
    ddp.eval()
    if bps.rank() == 0:  # an evaluation on one rank waits for nobody
        ddp(data(0))
    quiet = DistributedDataParallel(network(norm=True), broadcast_buffers=False)
    quiet.module[1].running_mean.fill_(bps.rank())
    quiet(data(bps.rank())).sum().backward()
    assert float(quiet.module[1].running_mean.mean()) != 0 or bps.rank() == 0
    assert quiet.module[1].running_mean.lt(0.5).all() == (bps.rank() == 0)


@check
def instances_do_not_meet() -> None:
    models = [network(seed=seed) for seed in (1, 2)]
    wanted = [average_of(model, plain_loss) for model in models]
    first, second = (DistributedDataParallel(model) for model in models)
    (plain_loss(first, bps.rank()) + plain_loss(second, bps.rank())).backward()
    for model, value in zip(models, wanted, strict=True):
        same(model, value)
    # One inside of the other's graph, as for adversarial networks.
    torch.manual_seed(1)
    head, body = nn.Linear(3, 2), network()
    wanted = average_of(nn.Sequential(body, head), plain_loss)
    pair = nn.Sequential(DistributedDataParallel(body), DistributedDataParallel(head))
    plain_loss(pair, bps.rank()).backward()
    same(pair, wanted)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.reentrant = reentrant

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = checkpoint(layer, inputs.tanh(), use_reentrant=self.reentrant)
        return inputs


@check
def checkpointing() -> None:
    def loss(model: nn.Module, rank: int) -> Tensor:
        total: Tensor = model(data(rank).requires_grad_()).square().sum()
        return total

    averages(Checkpointed(reentrant=True), loss)
    averages(Checkpointed(reentrant=False), loss)
    model = network()
    wanted = average_of(model, plain_loss)
    ddp = DistributedDataParallel(model)
    for reentrant in (False, True):  # the wrapped model is itself computed again
        ddp.zero_grad()
        inputs = data(bps.rank()).requires_grad_()
        checkpoint(ddp, inputs, use_reentrant=reentrant).square().sum().backward()
        same(model, wanted)


@check
def several_passes() -> None:
    model = network()
    ddp = DistributedDataParallel(model)

    def both(each: nn.Module, rank: int) -> Tensor:
        return plain_loss(each, rank, 0) + plain_loss(each, rank, 1)

    wanted = average_of(model, both)
    both(ddp, bps.rank()).backward()  # two forward passes, one backward pass
    same(model, wanted)
    ddp.zero_grad()
    losses = [plain_loss(ddp, bps.rank(), step) for step in range(2)]
    for loss in losses:  # and two
        loss.backward(retain_graph=True)
    for parameter, value in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, value, rtol=1e-5, atol=1e-6)
    losses[0].backward()  # the same graph again: added to the average, and averaged in its turn

    def again(each: nn.Module, rank: int) -> Tensor:
        return both(each, rank) + plain_loss(each, rank, 0)

    for parameter, value in zip(model.parameters(), average_of(model, again), strict=True):
        torch.testing.assert_close(parameter.grad, value, rtol=1e-5, atol=1e-6)


@check
def gradients_of_inputs_send_nothing() -> None:
    model = network()
    ddp = DistributedDataParallel(model)
    inputs = data(bps.rank()).requires_grad_()
    output = ddp(inputs)
    if bps.rank() == 0:  # on one rank alone
        torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    wanted = average_of(model, plain_loss)
    output.square().sum().backward()
    same(model, wanted)


@check
def compiled_inside_and_outside() -> None:
    model = network()
    wanted = average_of(model, plain_loss)
    ddp = DistributedDataParallel(torch.compile(model, backend="aot_eager"))
    for wrapped in (ddp, torch.compile(DistributedDataParallel(model), backend="aot_eager")):
        for _ in range(2):
            model.zero_grad()
            plain_loss(wrapped, bps.rank()).backward()
            for parameter, value in zip(model.parameters(), wanted, strict=True):
                torch.testing.assert_close(parameter.grad, value, rtol=1e-5, atol=1e-6)


@check
def a_backward_pass_that_raises() -> None:
    model = network()
    wanted = average_of(model, plain_loss)
    ddp = DistributedDataParallel(model)
    loss = plain_loss(ddp, bps.rank())
    if bps.rank() == 1:

        def trouble(gradient: Tensor) -> None:
            raise ArithmeticError("out of luck")

        handle = model[0].weight.register_hook(trouble)
        try:
            loss.backward()
            raise AssertionError("expected ArithmeticError")
        except ArithmeticError:
            handle.remove()
        ddp.synchronize()
    else:
        loss.backward()
    ddp.zero_grad()
    plain_loss(ddp, bps.rank()).backward()
    same(model, wanted)


@check
def outputs_may_be_changed_in_place() -> None:
    def loss(model: nn.Module, rank: int) -> Tensor:
        output = model(data(rank))
        output += 1
        total: Tensor = output.relu_().sum()
        return total

    averages(network(), loss)


@check
def frozen_shared_and_cast() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    ddp = averages(model)
    model[0].weight.requires_grad_(True)  # takes part from the step after next at the latest
    for _ in range(2):
        wanted = average_of(model, plain_loss)
        ddp.zero_grad()
        plain_loss(ddp, bps.rank()).backward()
    same(model, wanted)
    torch.manual_seed(1)
    tied = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
    tied[2].weight = tied[0].weight
    averages(tied)
    half = network()
    wanted = average_of(half, plain_loss)
    cast = DistributedDataParallel(half, compression=Compression.fp16)
    plain_loss(cast, bps.rank()).backward()
    for parameter, value in zip(half.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, value, rtol=2e-3, atol=1e-3)


@check
def a_copy_takes_no_part() -> None:
    model = network(norm=True)
    ddp = DistributedDataParallel(model)
    plain_loss(ddp, bps.rank()).backward()
    if bps.rank() == 0:  # alone
        average = torch.optim.swa_utils.AveragedModel(ddp)
        plain_loss(average, 0).backward()
        average.update_parameters(ddp)
    wanted = average_of(model, plain_loss)
    ddp.zero_grad()
    plain_loss(ddp, bps.rank()).backward()
    same(model, wanted)


@check
def what_cannot_be_honoured_is_said() -> None:
    frozen = network().requires_grad_(False)
    for model, options, text in (
        (network(), {"mixed_precision": object()}, "mixed_precision"),
        (network(), {"device_ids": [0, 1]}, "one device"),
        (network(), {"compression_params": {"compressor": "twobit"}}, "twobit"),
        (frozen, {}, "requires a gradient"),
    ):
        try:
            DistributedDataParallel(model, **options)
        except (ConfigError, ValueError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{options} was taken")
