"""``distributed``: a gradient transformation of optax that uses the gradients of all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.experimental
import numpy as np

from byteps.compress import parse
from byteps.errors import ConfigError
from byteps.jax.compression import Cast, Compression
from byteps.jax.gradients import average_gradients
from byteps.jax.ops import named_leaves
from byteps.worker import current

__all__ = ["distributed"]


def distributed(
    optimizer: Any,
    compression_params: Mapping[str, object] | None = None,
    compression: Cast = Compression.none,
    prefix: str = "Gradient.",
    learning_rate: float | Callable[[int], float] | None = None,
    momentum: float | None = None,
) -> Any:
    """A transformation that averages gradients over all ranks, and then is ``optimizer``.

        optimizer = bps.distributed(optax.adam(1e-3 * bps.size()), compression_params={"fp16": True})

    It goes wherever an optax optimizer goes: ``optax.chain``, ``jit``, ``flax`` train states. What comes
    before it in a chain works on this rank's gradients, and ``optimizer`` on those of all ranks. They are
    named after their place in the tree, which must be the same on all ranks.

    What is inside of an optax optimizer cannot be seen. So codecs that go by the learning rate (``ef`` of
    "corrected" and "sparse") need ``learning_rate``, a number or a schedule of optax, and a codec with
    ``momentum`` needs ``momentum``, which the optimizer itself must then not have:

        bps.distributed(optax.sgd(0.1), {"compressor": "onebit", "momentum": "nesterov"}, momentum=0.9)
    """
    try:
        import optax
    except ImportError as error:
        raise ConfigError("distributed: it makes a transformation of optax; pip install optax") from error
    current.required("distributed")
    codec = parse(compression_params)  # refuse here, not in the first step
    if codec.momentum and momentum is None:
        raise ConfigError(
            "distributed: compression_params['momentum'] = 'nesterov' needs the number: pass momentum=0.9, "
            "and an optimizer without momentum of its own"
        )
    if codec.ef in ("corrected", "sparse") and learning_rate is None:
        raise ConfigError(f"distributed: ef {codec.ef!r} goes by the learning rate; pass learning_rate=")
    steps = itertools.count()
    inner = optax.with_extra_args_support(optimizer)

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
        named = dict(named_leaves(updates, prefix))
        rates = None
        if codec.text():
            rates = (_now(learning_rate, steps), momentum)
        averages = average_gradients(named, compression.dtype is not None, compression_params, rates)
        whole = jax.tree.unflatten(jax.tree.structure(updates), list(averages.values()))
        return inner.update(whole, state, params, **more)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _now(rate: float | Callable[[int], float] | None, steps: Iterator[int]) -> Any:
    """The rate of this step; of a schedule it is asked for when the step runs, not when it is traced."""
    if not callable(rate):
        return rate or 0.0
    schedule = rate
    return jax.experimental.io_callback(
        lambda: np.float32(schedule(next(steps))), jax.ShapeDtypeStruct((), "float32"), ordered=True
    )
