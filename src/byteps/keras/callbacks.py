"""Callbacks for ``model.fit``: the same start on every rank, averaged metrics, learning rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import byteps
from byteps.errors import ConfigError
from byteps.keras.variables import broadcast_variables
from byteps.plugin.group import Group, Item
from byteps.tensor import dtypes

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives every rank the root's weights and state of the optimizer when training begins."""

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self.root_rank = root_rank
        self._done = False

    def on_train_begin(self, logs: Any = None) -> None:
        self._done = False
        self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._broadcast()

    def _broadcast(self) -> None:
        model = self.model
        if self._done or not model.built:  # what is built by its first batch waits for it
            return
        self._done = True
        _settle(model)
        optimizer = getattr(model, "optimizer", None)
        broadcast_variables([*model.variables, *getattr(optimizer, "variables", ())], self.root_rank)


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of an epoch over all ranks; put it before callbacks that use them."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not logs or byteps.size() == 1:
            return
        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
        items = [Item(f"Metric.{name}", dtypes.NUMBERS["float64"], (1,)) for name in names]
        values = [np.array([float(logs[name])]) for name in names]
        for name, average in zip(names, Group("push_pull", items, agree="metrics").run(values), strict=True):
            logs[name] = float(average[0])


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Multiplies ``initial_lr`` by ``multiplier``, a number or a function of the epoch.

    From ``start_epoch`` to before ``end_epoch``: at the start of each epoch with ``staircase``, else at each
    batch with fractions of an epoch. ``momentum_correction`` scales the momentum of SGD when the rate changes
    (Goyal et al., 2017, arXiv 1706.02677), because in Keras the rate is part of it.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        if self.steps_per_epoch is None:
            self.steps_per_epoch = (self.params or {}).get("steps")
        if self.steps_per_epoch is None and not self.staircase:
            raise ConfigError(
                f"{type(self).__name__}: the number of batches in an epoch is not known; pass steps_per_epoch"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if self.staircase:
            self._adjust(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.staircase and self.steps_per_epoch:
            self._adjust(self._epoch + batch / self.steps_per_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _adjust(self, epoch: float) -> None:
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        _settle(self.model)
        optimizer = self.model.optimizer
        before = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        rate = self.initial_lr * self.multiplier(epoch)
        if rate == before:
            return
        optimizer.learning_rate = rate
        if self.momentum_correction and before > 0 and isinstance(optimizer, keras.optimizers.SGD):
            for buffer in getattr(optimizer, "momentums", ()):
                buffer.assign(buffer * (rate / before))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the rate from ``initial_lr / size()`` to ``initial_lr`` in the first epochs, batch by batch."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

        def multiplier(epoch: float) -> float:
            done = epoch + 1 / (self.steps_per_epoch or 1)  # at the end of this batch
            size = byteps.size()
            return min(1.0, (1 + done * (size - 1) / warmup_epochs) / size)

        # One batch more than the warmup, which ends exactly at initial_lr.
        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=None if warmup_epochs <= 0 else warmup_epochs,  # type: ignore[arg-type]
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch + 1 == self.warmup_epochs and byteps.rank() == 0:
            print(f"epoch {epoch + 1}: warmed up to a learning rate of {self.initial_lr:g}")


def _settle(model: Any) -> None:
    """With JAX the state of training is outside of the variables: bring it back before changing them."""
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None:
        sync()
