"""``DistributedOptimizer``: an optimizer of ``torch.optim`` that steps with the gradients of all ranks.

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

Hooks push the gradients while the backward pass runs, and the end of ``backward()`` waits for the results:
then ``p.grad`` is the average over all ranks, to be clipped, unscaled or replaced as in one process. In
asynchronous training (BYTEPS_ENABLE_ASYNC=1) the step comes first and what it changed is exchanged.
"""

from __future__ import annotations

import contextlib
import copyreg
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from byteps.errors import BytePSError, ConfigError
from byteps.plugin.horovod import optimizer_options as horovod_options
from byteps.plugin.reductions import Average, ReduceOp
from byteps.torch import codec_state
from byteps.torch.async_weights import AsyncWeights
from byteps.torch.compression import Cast, Compression
from byteps.torch.gradient_slot import Slot
from byteps.torch.gradients import GradientExchange
from byteps.torch.ops import push_pull_async
from byteps.torch.parameter_names import Named, ParameterNames
from byteps.torch.rates import Rates, momentum_taken_out
from byteps.worker import current
from byteps.worker.tensors import codec_of

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Named | None = None,
    compression: Cast = Compression.none,
    backward_passes_per_step: int = 1,
    compression_params: Mapping[str, object] | None = None,
    *,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: object = None,
    sparse_as_dense: bool = True,
    process_set: object = None,
) -> Any:
    """Make ``optimizer`` average gradients over all ranks before each step, and return it.

    It is the same object, with its state, and still an instance of its class: learning rate schedulers and
    ``torch.amp.GradScaler`` work on it. When ``backward()`` returns, every ``p.grad`` is the average over all
    ranks; do the same to it on all of them. It has three more methods:

    - ``set_backward_passes_per_step(n)``: gradients of ``n`` passes are added up before they are exchanged,
      so divide the loss by ``n`` where you want their mean. In between they are those of this rank.
    - ``synchronize()`` exchanges now what has not been exchanged: after fewer passes than that, or where
      gradients were set by hand.
    - ``skip_synchronize()``: ``step()`` inside it exchanges nothing, as users of Horovod write it.

    A parameter that no rank used keeps ``grad = None``; one that only others used gets a gradient. Several
    backward passes without ``backward_passes_per_step`` are exchanged one by one.

    ``compression_params`` choose a codec (docs/compression.md). Its state is in ``state_dict()``, that of
    this rank: each rank saves and loads its own. With ``momentum`` in them, momentum and weight decay are
    applied before gradients are exchanged and not by the optimizer, with the numbers in its groups.

    The rest is Horovod's: ``op=Sum`` adds up instead of averaging. ``gradient_predivide_factor``,
    ``num_groups`` and ``groups`` are taken and change nothing: sums of halves are made in float32 and rounded
    once, and small tensors share a system call whatever their order. Sparse gradients travel as dense ones.

    For LBFGS, which decides by the loss, a closure returns the average loss, so that all ranks decide alike.

    All ranks must have the same parameters: DeclarationError names the first that differs. Raises
    ConfigError for parameters without a name or with the same one, NotInitializedError before ``init()``.
    """
    session = current.required("DistributedOptimizer")
    if isinstance(optimizer, _Distributed):
        raise ConfigError("DistributedOptimizer: this optimizer is one already; wrap an optimizer once")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            f"DistributedOptimizer: expected an optimizer of torch.optim, got {type(optimizer).__name__}"
        )
    if not isinstance(compression, Cast):
        raise ConfigError(
            f"DistributedOptimizer: compression={compression!r}: expected Compression.none or .fp16; "
            "codecs are chosen with compression_params"
        )
    average = horovod_options(op, gradient_predivide_factor, num_groups, groups, process_set)
    names = ParameterNames(named_parameters)
    named = names.of_all(optimizer.param_groups)
    weights = exchange = None
    if session.config.enable_async and session.size > 1:
        if compression.dtype is not None or compression_params:
            raise ConfigError(
                "DistributedOptimizer: with BYTEPS_ENABLE_ASYNC=1 exact weights are exchanged; expected "
                "compression=Compression.none and compression_params=None"
            )
        if not average:
            raise ConfigError(
                "DistributedOptimizer: with BYTEPS_ENABLE_ASYNC=1 weights are exchanged and no gradients are "
                "added up; leave out op=Sum"
            )
        weights = AsyncWeights(named)
    else:
        if session.size > 1 and isinstance(optimizer, torch.optim.SparseAdam):
            raise ConfigError(
                "DistributedOptimizer: SparseAdam takes sparse gradients only, and they are exchanged "
                "as dense ones; use Adam"
            )
        codec = codec_of(compression_params)
        rates = Rates(optimizer, codec) if codec else None
        exchange = GradientExchange(
            named,
            average=average,
            compression=compression,
            compression_params=compression_params,
            passes_per_step=backward_passes_per_step,
            rates=rates,
        )
    kind = type(optimizer)
    vars(optimizer).pop("step", None)  # an older scheduler has put its own around the step of the class
    vars(optimizer).update(_exchange=exchange, _weights=weights, _names=names, _plain_class=kind)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__doc__": kind.__doc__})
    return optimizer


class _Distributed(torch.optim.Optimizer):
    """What ``DistributedOptimizer`` adds in front of an optimizer's class."""

    _exchange: GradientExchange | None  # None in asynchronous training
    _weights: AsyncWeights | None  # None otherwise
    _names: ParameterNames
    _plain_class: type[torch.optim.Optimizer]
    _synchronize_in_step = True
    _looked_outside = False

    def synchronize(self) -> None:
        """Wait until every gradient is the average over all ranks; ``backward()`` has done that as a rule."""
        if self._exchange is not None:
            self._exchange.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """``step()`` inside exchanges nothing: that has been done."""
        self._synchronize_in_step = False
        try:
            yield
        finally:
            self._synchronize_in_step = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Add up the gradients of this many backward passes before they are pushed."""
        if self._exchange is not None:
            self._exchange.set_passes_per_step(passes)

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """One step with the gradients of all ranks; returns the loss of ``closure``, if there is one."""
        self._opt_called = True  # what schedulers look at to warn of a wrong order
        evaluate = closure if closure is None or self._exchange is None else self._exchanged(closure)
        if closure is None:
            self._prepare_step()

        def local_step() -> Any:
            # Not every optimizer's step knows a closure.
            arguments = () if evaluate is None else (evaluate,)
            if not self._moves_momentum:
                return super(_Distributed, self).step(*arguments, **kwargs)
            with momentum_taken_out(self.param_groups):
                return super(_Distributed, self).step(*arguments, **kwargs)

        result = local_step() if self._weights is None else self._weights.step(local_step)
        if self._exchange is not None:
            self._exchange.end_step()
        elif current.session is not None:
            current.session.steps.mark(self)
        return result

    @property
    def _moves_momentum(self) -> bool:
        exchange = self._exchange
        return exchange is not None and exchange.rates is not None and exchange.rates.moves_momentum

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer and, under "byteps", of this rank's codecs."""
        state: dict[str, Any] = super().state_dict()
        if self._exchange is not None and self._exchange.rates is not None:
            state[codec_state.KEY] = codec_state.save(self._exchange)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a ``state_dict()``; without a state of codecs in it they stay as they are."""
        super().load_state_dict(state_dict)
        if self._exchange is not None and self._exchange.rates is not None:
            codec_state.load(self._exchange, state_dict.get(codec_state.KEY, {}))

    # Hooks of torch run in the step of the class below, and schedulers need not wrap this one.
    step.hooked = True  # type: ignore[attr-defined]
    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def _prepare_step(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if not self._synchronize_in_step and exchange.needs_exchange:
            raise BytePSError(
                "step: inside skip_synchronize(), and there are gradients that have not been exchanged; call "
                "optimizer.synchronize() before, or step() outside of it"
            )
        exchange.prepare_step()
        if exchange.waits:
            exchange.finish()
        if not self._looked_outside:
            self._looked_outside = True
            self._look_outside()

    def _look_outside(self) -> None:
        """In the first step: does the model have gradients that stay with their rank?"""
        alone = [
            name
            for name, parameter in self._names.outside(self.param_groups).items()
            if parameter.grad is not None and not Slot.is_hooked(parameter)
        ]
        if alone and not self._exchange.is_idle:  # type: ignore[union-attr]
            warnings.warn(
                f"step: {', '.join(alone[:3])}{' and others' * (len(alone) > 3)} in named_parameters have "
                "gradients and are not in the optimizer: those stay with their rank, and clipping by a norm "
                "with them in it would clip differently on each; add them to the optimizer, freeze them with "
                "requires_grad_(False), or clip only the parameters of the optimizer",
                stacklevel=4,
            )

    def _exchanged(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, and then the gradients of all ranks."""
        by_loss = isinstance(self, torch.optim.LBFGS)

        def evaluate() -> Any:
            loss = closure()
            self._prepare_step()
            if not by_loss:
                return loss
            mine = (
                loss.detach() if isinstance(loss, Tensor) else torch.tensor(float(loss), dtype=torch.float64)
            )
            return push_pull_async(mine, name="Loss of LBFGS").wait()

        return evaluate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        if self._exchange is not None:
            self._exchange.restart("zero_grad")
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take one more group, on every rank the same; named by ``param_names`` or by its number."""
        if self._exchange is not None:
            self._exchange.restart("add_param_group")
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        named = self._names.of_group(number, self.param_groups[number])
        if self._exchange is not None:
            self._exchange.add(named)
        elif self._weights is not None:
            self._weights.add(named)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A copy has other parameters and no part in the exchange: it is an ordinary optimizer.
        return copyreg.__newobj__, (self._plain_class,), self.__getstate__()  # type: ignore[attr-defined]
