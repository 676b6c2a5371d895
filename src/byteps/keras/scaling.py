"""Loss scaling skips a step whose gradients are not finite: it must look at those of all ranks, or at none.

Keras puts ``LossScaleOptimizer`` around the optimizer of a model with mixed_float16 by itself. Around a
distributed optimizer, and in our strategy for TensorFlow, each rank would look at its own gradients: one
skips a step, the others make it, and from then on gradients of different steps meet. So such an optimizer is
refused when it is built, which happens before its first step however it was made.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import keras

from byteps.errors import ConfigError

__all__ = ["watch"]


def watch() -> None:
    """Make every ``LossScaleOptimizer`` look where it is; the first call does it."""
    kind = keras.optimizers.LossScaleOptimizer
    plain = kind.build
    if getattr(plain, "_byteps", False):
        return

    @functools.wraps(plain)
    def build(self: Any, *args: Any, **named: Any) -> Any:
        _check(self)
        return plain(self, *args, **named)

    build._byteps = True  # type: ignore[attr-defined]
    kind.build = build


def _check(optimizer: Any) -> None:
    from byteps.keras.optimizer import is_distributed  # which needs this module

    if is_distributed(optimizer):
        return
    if is_distributed(optimizer.inner_optimizer):
        raise ConfigError(
            "LossScaleOptimizer: its scaling is around a distributed optimizer, where Keras puts it for "
            "mixed_float16, so that ranks could skip different steps; pass "
            "DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
        )
    tf = sys.modules.get("tensorflow")
    if tf is not None and hasattr(tf.distribute.get_strategy(), "_byteps"):
        raise ConfigError(
            "LossScaleOptimizer: in MirroredStrategy each rank would look at its own gradients, so that "
            "ranks could skip different steps; use DistributedOptimizer(keras.optimizers.LossScaleOptimizer("
            "optimizer)) without the strategy"
        )
