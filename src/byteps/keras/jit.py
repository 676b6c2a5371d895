"""Keras compiles a model with XLA where it can, and XLA cannot call the network from TensorFlow.

So a model with a distributed optimizer, or in our strategy for TensorFlow, counts as one that cannot be
compiled, as a model with such a layer does. Keras asks a function of its own that knows layers only; it is
asked through ours. With JAX there is no need: there a compiled function can call out.
"""

from __future__ import annotations

import functools
from typing import Any

import keras

__all__ = ["watch"]


def watch() -> None:
    """Make Keras ask about optimizers too; the first call does it. Where Keras has changed, nothing happens:

    the user is then told by the operation itself to pass ``jit_compile=False``.
    """
    if keras.backend.backend() != "tensorflow":
        return
    try:
        from keras.src.trainers import trainer
    except ImportError:
        return
    ask = getattr(trainer, "model_supports_jit", None)
    if ask is None or getattr(ask, "_byteps", False):
        return

    @functools.wraps(ask)
    def model_supports_jit(model: Any) -> Any:
        from byteps.keras.optimizer import is_distributed  # which needs this module

        optimizer = getattr(model, "optimizer", None)
        strategy = getattr(model, "distribute_strategy", None)
        return False if is_distributed(optimizer) or hasattr(strategy, "_byteps") else ask(model)

    model_supports_jit._byteps = True  # type: ignore[attr-defined]
    trainer.model_supports_jit = model_supports_jit
