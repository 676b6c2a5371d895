"""``MirroredStrategy``: trains a Keras model with ``model.fit`` on all ranks.

    strategy = byteps.tensorflow.distribute.MirroredStrategy()
    with strategy.scope():
        model = keras.Sequential(...)
        model.compile(optimizer="sgd", loss=...)
    model.fit(dataset)  # batches of the whole job; each rank takes its part

A rank is one replica on one device. What TensorFlow's own strategy does between devices of a process, this
one does between ranks, over the network.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from byteps.errors import ConfigError
from byteps.plugin.tensorflow.gradients import refuse_async
from byteps.tensorflow.distribute.extended import between_ranks
from byteps.worker import current

__all__ = ["MirroredStrategy"]


class MirroredStrategy(tf.distribute.MirroredStrategy):  # type: ignore[misc]
    """Variables are alike on all ranks; gradients and metrics are reduced over all of them.

    Make it after ``init()``, and the same model in the same order on all ranks. Variables start from rank
    0's values. Batches are those of the whole job, and the last one should be full (``drop_remainder=True``):
    every rank takes an equal part of each. As in every strategy of TensorFlow, Keras clips (``clipnorm`` and
    the like of an optimizer) what each rank has, before the sum; ``DistributedOptimizer`` clips the average.
    """

    _byteps = True

    def __init__(self, devices: Any = None) -> None:
        session = current.required("MirroredStrategy")
        refuse_async("MirroredStrategy")
        chosen = [devices] if isinstance(devices, str) else list(devices or [_device(session.local_rank)])
        if len(chosen) != 1:
            raise ConfigError(
                f"MirroredStrategy: {len(chosen)} devices, expected one for each rank; start one rank for "
                "each device"
            )
        super().__init__(devices=chosen)
        between_ranks(self.extended)
        _tell_keras()


def _device(local_rank: int) -> str:
    gpus = tf.config.list_logical_devices("GPU")
    return str(gpus[local_rank % len(gpus)].name) if gpus else "/cpu:0"


def _tell_keras() -> None:
    """Keras must not compile the model with XLA, nor scale its loss."""
    try:
        from byteps.keras import jit, scaling
    except ImportError:  # a TensorFlow without Keras
        return
    jit.watch()
    scaling.watch()
