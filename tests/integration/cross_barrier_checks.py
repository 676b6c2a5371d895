"""What ``CrossBarrier`` must do on two ranks; each check runs on both at once (test_cross_barrier.py).

The oracle is ``DistributedOptimizer`` on its own: parameters and state must have the same bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import byteps.torch.cross_barrier as bps
from byteps.errors import ConfigError
from byteps.testing.checks import Checks
from byteps.torch.layers import assign

check = Checks()
STEPS = 4
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "AdamW": lambda groups: torch.optim.AdamW(groups, lr=torch.tensor(0.01)),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, momentum=0.5, centered=True),
}


class Network(nn.Module):
    """Attention (which does not call its out_proj), a tied weight, a layer used at times, one never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(8, 11, bias=False)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.sometimes = nn.Linear(8, 8)
        self.tokens = nn.Embedding(11, 8)
        self.head.weight = self.tokens.weight
        self.scale = nn.Parameter(torch.ones(8))
        self.step = 0

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        hidden = self.norm(hidden + self.attention(hidden, hidden, hidden)[0])
        if self.step % 2:
            hidden = self.sometimes(hidden)
        self.step += self.training
        logits: Tensor = self.head(hidden * self.scale)
        return logits


def loss_of(model: nn.Module, step: int) -> Tensor:
    source = torch.Generator().manual_seed(10 * step + bps.rank())
    tokens = torch.randint(11, (3, 5), generator=source)
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    parameters = list(model.parameters())
    return [{"params": parameters[:4]}, {"params": parameters[4:], "lr": 0.02}]


def same(first: nn.Module, second: nn.Module) -> None:
    pairs = zip(first.state_dict().items(), second.state_dict().values(), strict=True)
    for (name, value), other in pairs:
        assert torch.equal(value, other), (name, value, other)


def trained(make: Callable[[Any], torch.optim.Optimizer], crossing: bool, steps: int = STEPS) -> Any:
    model = Network()
    optimizer = bps.DistributedOptimizer(make(groups_of(model)), model.named_parameters())
    if crossing:
        optimizer = bps.CrossBarrier(model, optimizer, num_steps=10**6)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss_of(model, step).backward()
        optimizer.step()
        scheduler.step()
        model.zero_grad()  # takes nothing away that is still needed
    return model, optimizer


@check
def the_same_bits_as_without_it() -> None:
    for name, make in OPTIMIZERS.items():
        (wanted, plain), (model, optimizer) = (trained(make, crossing) for crossing in (False, True))
        assert isinstance(optimizer, type(make(groups_of(wanted)))), name
        same(wanted, model)  # state_dict() waits
        states = [each.state_dict()["state"] for each in (plain, optimizer)]
        assert states[0].keys() == states[1].keys()
        for key, state in states[0].items():
            for entry, value in state.items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(states[1][key][entry])), entry


@check
def parameters_are_whole_where_they_should_be() -> None:
    wanted, _ = trained(OPTIMIZERS["Adam"], crossing=False)
    model, optimizer = trained(OPTIMIZERS["Adam"], crossing=True)
    assert optimizer._pending._updates, "step() was to wait for nothing"
    model.eval()
    with torch.no_grad():
        tokens = torch.arange(10).view(2, 5)
        assert torch.equal(model(tokens), wanted.eval()(tokens))
    assert not optimizer._pending._updates
    model.train()
    loss_of(model, 9).backward()
    optimizer.step()
    before = model.scale.detach().clone()
    optimizer.synchronize()
    assert not torch.equal(before, model.scale) and model.scale.grad is None
    # The last step leaves nothing behind.
    model = Network()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    last = bps.CrossBarrier(model, plain, num_steps=2)  # becomes a DistributedOptimizer
    for step in range(2):
        last.zero_grad()
        loss_of(model, step).backward()
        last.step()
        assert bool(last._pending._updates) == (step == 0)


@check
def state_goes_from_one_to_another() -> None:
    model, optimizer = trained(OPTIMIZERS["Adam"], crossing=True, steps=3)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    other = Network()
    restored = bps.CrossBarrier(other, OPTIMIZERS["Adam"](groups_of(other)))
    loss_of(other, 5).backward()
    restored.step()
    loss_of(other, 6).backward()
    restored.step()  # an update that is under way must not be added to what is loaded
    other.load_state_dict(saved[0])
    restored.load_state_dict(saved[1])
    other.step = model.step
    for each, its in ((model, optimizer), (other, restored)):
        for step in (3, 4):
            its.zero_grad()
            loss_of(each, step).backward()
            its.step()
    same(model, other)


@check
def clipping_and_closures() -> None:
    models = [Network(), Network()]
    for model, crossing in zip(models, (False, True), strict=True):
        optimizer = bps.DistributedOptimizer(OPTIMIZERS["SGD"](groups_of(model)), model.named_parameters())
        if crossing:
            optimizer = bps.CrossBarrier(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()

            def closure(model: Any = model, optimizer: Any = optimizer, step: int = step) -> Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, step + 5)
                loss.backward()
                return loss

            assert optimizer.step(closure).requires_grad
    same(*models)


@check
def several_passes_for_each_step() -> None:
    models = [Network(), Network()]
    for model, crossing in zip(models, (False, True), strict=True):
        inner = OPTIMIZERS["Adam"](groups_of(model))
        optimizer = bps.DistributedOptimizer(inner, model.named_parameters(), backward_passes_per_step=2)
        if crossing:
            optimizer = bps.CrossBarrier(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            for number in range(2):
                loss_of(model, 2 * step + number).backward()
            optimizer.step()
    same(*models)


@check
def a_layer_waits_for_its_own_gradients_only() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = bps.CrossBarrier(model, torch.optim.SGD(model.parameters(), lr=0.1))
    exchange = optimizer._exchange
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    if bps.rank() == 1:  # pushes the gradients of the other layers only when rank 0 says: I am past the first
        exchange.paused = True
        model(torch.ones(1, 4)).sum().backward()
        for parameter in model[0].parameters():
            exchange._slots[parameter].push(exchange.session)
        bps.push_pull(torch.ones(1), name="past the first layer")
        exchange.paused = False
        optimizer.step()
        optimizer.synchronize()
    else:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        said = []

        def past(*_: object) -> None:
            if not said:
                said.append(bps.push_pull(torch.ones(1), name="past the first layer"))

        model[0].register_forward_hook(past)
        model(torch.ones(1, 4))
        assert said and not optimizer._pending._updates
    total = torch.stack([parameter.double().sum() for parameter in model.parameters()]).detach()
    assert torch.equal(total, bps.broadcast(total.clone(), 0, name="the same"))


@check
def a_compiled_module_is_one_layer() -> None:
    models = []
    for crossing in (False, True):
        torch.manual_seed(1)
        body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        model = nn.Sequential(torch.compile(body, backend="aot_eager"), nn.Linear(4, 2))
        optimizer = bps.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        if crossing:
            optimizer = bps.CrossBarrier(model, optimizer)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.full((2, 4), step + bps.rank() + 1.0)).square().sum().backward()
            optimizer.step()
        models.append(model)
    same(*models)


@check
def layers_and_their_parameters() -> None:
    model = Network()
    called = [model, model.tokens, model.attention, model.norm, model.head]
    needs = assign(model, called)
    attention = dict.fromkeys(model.attention.parameters())
    assert dict.fromkeys(needs[model.attention]) == attention  # with those of out_proj
    assert needs[model.tokens][0] is needs[model.head][0] is model.tokens.weight
    assert set(needs[model]) == {model.scale, *model.unused.parameters(), *model.sometimes.parameters()}


@check
def what_cannot_be_crossed_is_said() -> None:
    model = nn.Linear(2, 2)
    try:
        bps.CrossBarrier(model, torch.optim.LBFGS(model.parameters()))
    except ConfigError as error:
        assert "LBFGS" in str(error)
    else:
        raise AssertionError("LBFGS was taken")
