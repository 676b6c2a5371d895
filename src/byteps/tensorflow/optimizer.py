"""``DistributedOptimizer`` for the optimizers of Keras and of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from byteps.errors import ConfigError
from byteps.plugin.tensorflow.compression import Cast, Compression
from byteps.plugin.tensorflow.gradients import average_gradients, refuse_async
from byteps.worker import current

__all__ = ["DistributedOptimizer"]


def DistributedOptimizer(
    optimizer: Any,
    compression: Cast = Compression.none,
    compression_params: Mapping[str, object] | None = None,
) -> Any:
    """Make ``optimizer`` average gradients over all ranks before each step, and return it.

    It is the same object, and still an instance of its class. For an optimizer of Keras
    (``tf.keras.optimizers``) that happens in ``apply_gradients()``, for one of ``tf.compat.v1.train`` in
    ``compute_gradients()``.
    """
    current.required("DistributedOptimizer")
    refuse_async("DistributedOptimizer")
    if isinstance(optimizer, _Distributed):
        raise ConfigError("DistributedOptimizer: this optimizer is one already; wrap an optimizer once")
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from byteps.keras.optimizer import DistributedOptimizer as of_keras

        return of_keras(optimizer, compression=compression, compression_params=compression_params)
    kind = type(optimizer)
    vars(optimizer)["_byteps"] = (compression, compression_params)
    optimizer.__class__ = type(kind.__name__, (_Distributed, kind), {"__doc__": kind.__doc__})
    return optimizer


class _Distributed(tf.compat.v1.train.Optimizer):  # type: ignore[misc]
    """What ``DistributedOptimizer`` adds in front of the class of an optimizer of TensorFlow 1."""

    _byteps: tuple[Cast, Mapping[str, object] | None]

    def compute_gradients(self, *args: Any, **named: Any) -> list[tuple[Any, Any]]:
        """Pairs of gradient and variable; the gradients are averages over all ranks."""
        pairs = super().compute_gradients(*args, **named)
        variables = [variable for _, variable in pairs]
        averages = average_gradients([gradient for gradient, _ in pairs], variables, *self._byteps)
        return list(zip(averages, variables, strict=True))
