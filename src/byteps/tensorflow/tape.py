"""``DistributedGradientTape``: a ``tf.GradientTape`` whose gradients are averages over all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from byteps.plugin.tensorflow.compression import Cast, Compression
from byteps.plugin.tensorflow.gradients import average_gradients, refuse_async
from byteps.worker import current

__all__ = ["DistributedGradientTape"]


def DistributedGradientTape(
    tape: tf.GradientTape,
    compression: Cast = Compression.none,
    compression_params: Mapping[str, object] | None = None,
    prefix: str = "Gradient.",
) -> Any:
    """Make ``tape.gradient()`` average over all ranks, and return the tape.

        with tf.GradientTape() as tape:
            loss = ...
        tape = bps.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)

    Eager and inside ``tf.function``. The result has the structure of ``sources``; IndexedSlices become dense.
    Where two tapes of one step have sources of the same names, give one of them another ``prefix``.
    """
    current.required("DistributedGradientTape")
    refuse_async("DistributedGradientTape")
    if not isinstance(tape, _Distributed):
        kind = type(tape)
        tape.__class__ = type(kind.__name__, (_Distributed, kind), {"__doc__": kind.__doc__})
    vars(tape)["_byteps"] = (compression, compression_params, prefix)
    return tape


class _Distributed(tf.GradientTape):  # type: ignore[misc]
    """What ``DistributedGradientTape`` adds in front of a tape's class."""

    _byteps: tuple[Cast, Mapping[str, object] | None, str]

    def gradient(self, target: Any, sources: Any, *args: Any, **named: Any) -> Any:
        """The gradients of ``target``, averaged over all ranks."""
        gradients = tf.nest.flatten(super().gradient(target, sources, *args, **named))
        averages = average_gradients(gradients, tf.nest.flatten(sources), *self._byteps)
        return tf.nest.pack_sequence_as(sources, averages)
