"""``DistributedOptimizer`` for Keras 3: an optimizer that steps with the gradients of all ranks.

optimizer = bps.DistributedOptimizer(keras.optimizers.Adam(0.001 * bps.size()))
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras

from byteps.compress import parse
from byteps.errors import ConfigError
from byteps.keras import backends, jit, scaling
from byteps.keras.compression import Compression, is_fp16
from byteps.worker import current

__all__ = ["DistributedOptimizer", "is_distributed"]

_BEFORE_MOMENTUM = ("clipnorm", "global_clipnorm", "clipvalue", "gradient_accumulation_steps")
made: weakref.WeakSet[Any] = weakref.WeakSet()  # for broadcast_global_variables()


class Settings(NamedTuple):
    """How gradients travel."""

    fp16: bool
    compression_params: Mapping[str, object] | None
    moved: Mapping[str, Any]  # what the core does instead of the optimizer: momentum, and how it was


def DistributedOptimizer(
    optimizer: Any,
    compression: Any = Compression.none,
    compression_params: Mapping[str, object] | None = None,
) -> Any:
    """Make ``optimizer`` average gradients over all ranks before each step, and return it.

    It is the same object, with its state, and still an instance of its class. A model that is saved with it
    is an ordinary one: ``keras.models.load_model`` loads it without byteps, and ``byteps.keras.load_model``
    makes its optimizer a distributed one again. Gradients are clipped and accumulated after the exchange.
    With ``momentum`` in ``compression_params`` the momentum of SGD is applied before it, with its number.

    With mixed_float16 wrap the optimizer that scales the loss, so that all ranks skip the same steps:
    ``DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))``. All ranks must have the same
    variables under the same names: DeclarationError names the first that differs.
    """
    session = current.required("DistributedOptimizer")
    if isinstance(optimizer, _Distributed):
        raise ConfigError("DistributedOptimizer: this optimizer is one already; wrap an optimizer once")
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigError(
            f"DistributedOptimizer: {type(optimizer).__name__} is not an optimizer of Keras 3; pass one of "
            "keras.optimizers"
        )
    if session.config.enable_async:
        raise ConfigError(
            "DistributedOptimizer: BYTEPS_ENABLE_ASYNC=1 is for byteps.torch in this version; unset it "
            "everywhere"
        )
    moved = _momentum_taken_out(optimizer) if parse(compression_params).momentum else {}
    kind = type(optimizer)
    more = {
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,  # under which Keras saves it
        "_byteps": Settings(is_fp16(compression), compression_params, moved),
    }
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), more)
    made.add(optimizer)
    jit.watch()
    scaling.watch()
    return optimizer


def is_distributed(optimizer: object) -> bool:
    """True for what ``DistributedOptimizer`` returned."""
    return isinstance(optimizer, _Distributed)


class _Distributed(keras.optimizers.Optimizer):  # type: ignore[misc]
    """What ``DistributedOptimizer`` adds in front of an optimizer's class."""

    _byteps: Settings
    _byteps_exchanged = False  # inside stateless_apply()

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        """One step with the averages of ``grads`` over all ranks."""
        if not self._byteps_exchanged and len(grads):
            if trainable_variables is not None:
                trainable_variables = list(trainable_variables)
            grads = self._byteps_average(grads, trainable_variables)
        return super().apply(grads, trainable_variables)

    def stateless_apply(
        self, optimizer_variables: Any, grads: Sequence[Any], trainable_variables: Any
    ) -> Any:
        """The same for the JAX backend, whose loss scaling does not come through ``apply``."""
        if not hasattr(self, "inner_optimizer"):
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)
        with keras.StatelessScope(list(zip(self.variables, optimizer_variables, strict=True))):
            grads = self._byteps_average(grads, None)
        self.__dict__["_byteps_exchanged"] = True
        try:
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)
        finally:
            self.__dict__["_byteps_exchanged"] = False

    def _byteps_average(self, grads: Sequence[Any], variables: Sequence[Any] | None) -> list[Any]:
        if variables is None:
            scaled: Any = getattr(self, "inner_optimizer", self)  # what loss scaling is around
            variables = list(scaled._trainable_variables)
        if len(grads) != len(variables):
            raise ConfigError(
                f"apply: {len(grads)} gradients for {len(variables)} variables; pass those of all of them"
            )
        fp16, params, moved = self._byteps
        rates = (keras.ops.convert_to_tensor(self.learning_rate), moved.get("momentum"))
        return backends.average(list(grads), list(variables), fp16, params, rates)

    def get_config(self) -> dict[str, Any]:
        """What makes such an optimizer again, with the momentum that is the core's now."""
        config: dict[str, Any] = {**super().get_config(), **self._byteps.moved}
        return config


def _momentum_taken_out(optimizer: Any) -> dict[str, Any]:
    """With ``momentum`` in compression_params the core applies it, so the optimizer must not do it again.

    Weight decay of Keras is apart from the gradient, and stays with the optimizer.
    """
    if not isinstance(optimizer, keras.optimizers.SGD) or not optimizer.momentum:
        raise ConfigError(
            "DistributedOptimizer: compression_params['momentum'] = 'nesterov' takes the momentum of the "
            f"optimizer, and {type(optimizer).__name__} has none to take; pass keras.optimizers.SGD(..., "
            "momentum=0.9), or leave the key out"
        )
    for option in _BEFORE_MOMENTUM:
        if getattr(optimizer, option, None):
            raise ConfigError(
                f"DistributedOptimizer: {option} of the optimizer comes before its momentum, and with "
                "compression_params['momentum'] = 'nesterov' it would come after it; leave one of them out"
            )
    found = {"momentum": optimizer.momentum, "nesterov": optimizer.nesterov}
    optimizer.momentum, optimizer.nesterov = 0.0, False
    return found
