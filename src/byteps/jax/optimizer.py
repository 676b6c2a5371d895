"""``distributed``: a gradient transformation of optax that uses the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

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
) -> Any:
    """A transformation that averages gradients over all ranks, and then is ``optimizer``.

        optimizer = bps.distributed(optax.adam(1e-3 * bps.size()), compression_params={"fp16": True})

    It goes wherever an optax optimizer goes: ``optax.chain``, ``jit``, ``flax`` train states. What comes
    before it in a chain works on this rank's gradients, and ``optimizer`` on those of all ranks. They are
    named after their place in the tree, which must be the same on all ranks.
    """
    try:
        import optax
    except ImportError as error:
        raise ConfigError("distributed: it makes a transformation of optax; pip install optax") from error
    current.required("distributed")
    parse(compression_params)  # refuse here, not in the first step
    inner = optax.with_extra_args_support(optimizer)

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
        named = dict(named_leaves(updates, prefix))
        averages = average_gradients(named, compression.dtype is not None, compression_params)
        whole = jax.tree.unflatten(jax.tree.structure(updates), list(averages.values()))
        return inner.update(whole, state, params, **more)

    return optax.GradientTransformationExtraArgs(inner.init, update)
