"""``CrossBarrier``: the next forward pass starts before all gradients are in.

    import byteps.torch.cross_barrier as bps

    optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    optimizer = bps.CrossBarrier(model, optimizer, num_steps=steps)

Without it ``step()`` is a barrier between the backward pass and the next forward pass: it waits for the last
gradient, though the first layer needs only its own. With it ``step()`` waits for nothing. Each layer, when
the next forward pass is about to enter it, waits for its own gradients and updates its own parameters; what
later layers need travels meanwhile. The numbers are those of training without it, bit for bit.

All names of ``byteps.torch`` are here too, as users of BytePS know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

import byteps.torch
from byteps.errors import BytePSError, ConfigError
from byteps.torch import *  # noqa: F403
from byteps.torch.gradients import GradientExchange
from byteps.torch.layers import Layers
from byteps.torch.optimizer import DistributedOptimizer
from byteps.torch.rates import without_momentum

__all__ = ["CrossBarrier", *byteps.torch.__all__]


def CrossBarrier(model: nn.Module, optimizer: torch.optim.Optimizer, num_steps: int = 10**6) -> Any:
    """Let the updates of ``optimizer`` cross into the next forward pass of ``model``, and return it.

    It is the same object, so schedulers work on it: an update uses the learning rate of its own ``step()``.
    It can be a ``DistributedOptimizer`` or one that is to become one, and must update each parameter by
    itself, as SGD, Adam, AdamW and RMSprop do.

    What is different from before:

    - ``step()`` takes the gradients: they are ``None`` after it.
    - Parameters are whole after ``synchronize()``, in ``state_dict()`` of model and optimizer, in a forward
      pass that is not for training, and after step number ``num_steps``. Call ``synchronize()`` before you
      look at them otherwise.
    - ``backward()`` does not wait for gradients. Whoever touches one before ``step()``, to clip or to print
      it, or begins another forward pass, waits for all of them: so that step is right, and has a barrier.
    - A second ``backward()`` without a forward pass before it is refused; so is a change of memory in which
      gradients were when ``step()`` took them. Call ``synchronize()`` before.

    A layer is a module that is called. A compiled module is one layer.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ConfigError(
            "CrossBarrier: LBFGS updates all parameters together, expected an optimizer that updates each by "
            "itself; use DistributedOptimizer alone"
        )
    if isinstance(optimizer, _Crossing):
        raise ConfigError("CrossBarrier: this optimizer crosses already; wrap an optimizer once")
    if not hasattr(optimizer, "_exchange"):
        optimizer = DistributedOptimizer(optimizer, model.named_parameters())
    return _crossing(model, optimizer, num_steps)


def _crossing(model: nn.Module, optimizer: Any, num_steps: int) -> Any:
    if optimizer._exchange is None:
        raise ConfigError(
            "CrossBarrier: with BYTEPS_ENABLE_ASYNC=1 no rank waits for another, so there is no barrier to "
            "cross; use DistributedOptimizer alone"
        )
    kind = type(optimizer)
    vars(optimizer).pop("step", None)  # an older scheduler's, around the step of the old class
    pending = _Pending(optimizer, optimizer._exchange)
    layers = Layers(model, pending.enter)
    optimizer._exchange.waits = False
    # What the last forward pass did not use is updated before its next gradient leaves.
    optimizer._exchange.on_end = pending.apply
    vars(optimizer).update(_pending=pending, _layers=layers, _steps_left=num_steps)
    optimizer.__class__ = type(kind.__name__, (_Crossing, kind), {"__doc__": kind.__doc__})
    # Whoever saves or loads parameters gets or replaces what the last step has made of them.
    whole: Any = model
    whole.register_state_dict_pre_hook(lambda *_: pending.apply())
    whole._register_load_state_dict_pre_hook(lambda *_: pending.apply())
    return optimizer


class _Pending:
    """Updates that wait for their gradients: for each parameter its gradient and the options of its step."""

    def __init__(self, optimizer: Any, exchange: GradientExchange) -> None:
        self._optimizer = optimizer
        self._exchange = exchange
        self._updates: dict[Tensor, tuple[Tensor, int, dict[str, Any]]] = {}  # gradient, its version, options
        # Updates what is in its groups by the rules of the plain class, on the state of the optimizer.
        self._worker: Any = object.__new__(optimizer._plain_class)
        vars(self._worker).update(vars(optimizer))
        # Without what torch puts around every step(): hooks of the user, which run once for each of ours, and
        # an entry of the profiler, which takes as long as the update of a small layer.
        step: Any = optimizer._plain_class.step
        self._step: Callable[[Any], object] = step.__wrapped__ if getattr(step, "hooked", False) else step

    def take(self) -> None:
        """Take the gradients of this step, with the options that hold now: schedulers change them."""
        with torch._C.DisableTorchFunctionSubclass():  # reading a version is no touch that must wait
            self._take()

    def _take(self) -> None:
        for found in self._optimizer.param_groups:
            group = without_momentum(found) if self._optimizer._moves_momentum else found
            options = {
                key: value.clone() if isinstance(value, Tensor) else value
                for key, value in group.items()
                if key != "params"
            }
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is not None:
                    self._updates[parameter] = gradient, gradient._version, options
                    parameter.grad = None
                else:
                    self._exchange.wait(parameter)  # somebody has given the gradient up on its way

    def enter(self, parameters: Sequence[Tensor]) -> None:
        """A layer with these parameters is about to run: update them, and with them what has come meanwhile.

        Updates cost by their number more than by their size, so layers that need not wait are not entered
        one by one.
        """
        if self._exchange.is_exchanged:
            self._exchange.finish()  # step() is still to come, and another backward pass may add to gradients
        updates = self._updates
        needed = dict.fromkeys(parameter for parameter in parameters if parameter in updates)
        if needed:
            others = (parameter for parameter in updates if parameter not in needed)
            self._update((*needed, *takewhile(self._exchange.is_done, others)))

    def apply(self) -> None:
        """Update everything that is left."""
        self._update(tuple(self._updates))

    def _update(self, parameters: Iterable[Tensor]) -> None:
        """Wait for the gradients of these parameters, and update them."""
        groups: dict[int, dict[str, Any]] = {}
        next_gradients: dict[Tensor, Tensor | None] = {}  # that a script has set for the pass to come
        for parameter in parameters:
            gradient, version, options = self._updates.pop(parameter)
            self._exchange.wait(parameter)
            if gradient._version != version:
                raise BytePSError(
                    f"step: the gradient {self._exchange.name(parameter)} was changed after step() took it, "
                    "and the update with it is made only now, in the next forward pass; call "
                    "optimizer.synchronize() before you change memory that gradients have been in"
                )
            next_gradients[parameter] = parameter.grad
            parameter.grad = gradient
            groups.setdefault(id(options), {**options, "params": []})["params"].append(parameter)
        if not groups:
            return
        # By name and not through the optimizer: loading a state has replaced it.
        vars(self._worker).update(param_groups=list(groups.values()), state=self._optimizer.state)
        self._step(self._worker)
        for parameter, gradient_or_none in next_gradients.items():
            parameter.grad = gradient_or_none


class _Crossing(torch.optim.Optimizer):
    """What ``CrossBarrier`` adds in front of the class of a ``DistributedOptimizer``."""

    _exchange: GradientExchange
    _pending: _Pending
    _layers: Layers
    _steps_left: int
    _is_ordered = False
    _prepare_step: Callable[[], None]  # of DistributedOptimizer

    @torch.optim.Optimizer.profile_hook_step
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let the layers update themselves; returns the loss of ``closure``, if there is one."""
        self._opt_called = True  # what schedulers look at to warn of a wrong order
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._pending.apply()  # of layers that the last forward pass did not use
        order = self._layers.order
        if order is not None and not self._is_ordered:
            self._exchange.set_order(order)
            self._is_ordered = True
        self._prepare_step()
        self._pending.take()
        self._exchange.end_step()
        self._steps_left -= 1
        if order is None or self._steps_left <= 0 or self._exchange.session.size == 1:
            self._pending.apply()  # nobody knows the layers yet, or no forward pass is to come
        return loss

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def synchronize(self) -> None:
        """Wait for everything: parameters are up to date, and gradients, if there are any, are averages."""
        self._pending.apply()
        exchange = self._exchange
        # Not without gradients: one rank alone may want to look at parameters.
        if exchange.is_open or any(parameter.grad is not None for parameter in exchange.parameters):
            exchange.synchronize()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients that ``step()`` has not taken."""
        exchange = self._exchange
        if exchange.is_exchanged:
            exchange.finish()
        if exchange.is_exchanged or exchange.is_open:
            self._pending.apply()
            exchange.restart("zero_grad")
        torch.optim.Optimizer.zero_grad(self, set_to_none)

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._pending.apply()
        super().set_backward_passes_per_step(passes)  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        self._pending.apply()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._pending.apply()
        super().load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self._pending.apply()
        super().add_param_group(param_group)
