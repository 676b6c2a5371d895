"""Momentum and weight decay taken out of an MXNet optimizer: with a codec that has momentum the core does it.

MXNet scales a gradient by the batch, adds the decay and then applies momentum. Now the first two are done
before the gradient travels, the core applies momentum, and the optimizer only steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from byteps.errors import ConfigError

__all__ = ["Moved"]


class Moved:
    """What was taken out of ``optimizer``."""

    def __init__(self, optimizer: Any) -> None:
        if not isinstance(optimizer, (mx.optimizer.SGD, mx.optimizer.NAG)) or not optimizer.momentum:
            raise ConfigError(
                "DistributedTrainer: compression_params['momentum'] = 'nesterov' takes the momentum of the "
                f'optimizer, and {type(optimizer).__name__} has none to take; pass "nag" or "sgd" with '
                "momentum, or leave the key out"
            )
        if optimizer.clip_gradient:
            raise ConfigError(
                "DistributedTrainer: clip_gradient of the optimizer comes before its momentum, and with "
                "compression_params['momentum'] = 'nesterov' it would come after it; leave one of them out"
            )
        self._optimizer = optimizer
        self.momentum = float(optimizer.momentum)
        self._decay = float(optimizer.wd)
        optimizer.momentum = optimizer.wd = 0.0

    def prepare(self, parameters: Sequence[Any]) -> None:
        """Make the gradients those of the whole loss: scaled, with the decay of the weights."""
        scale, self._optimizer.rescale_grad = self._optimizer.rescale_grad, 1.0
        for parameter in parameters:
            decay = self._decay * parameter.wd_mult
            gradient = parameter.grad()
            gradient *= scale
            if decay:
                gradient += decay * parameter.data()
