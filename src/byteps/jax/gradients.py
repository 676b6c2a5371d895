"""The gradients of a step: all are averaged over the ranks, together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byteps.errors import ConfigError
from byteps.jax.compression import Compression
from byteps.jax.exchange import group_of, run
from byteps.worker import current

__all__ = ["average_gradients"]


def average_gradients(
    gradients: Mapping[str, Any],
    fp16: bool,
    compression_params: Mapping[str, object] | None = None,
    rates: tuple[Any, float | None] | None = None,
) -> dict[str, Any]:
    """The average of each gradient over all ranks, by name.

    Ranks whose lists of gradients differ get a DeclarationError that says where. ``rates`` are the learning
    rate and the momentum that is left to the core.
    """
    if current.required("push_pull").config.enable_async:
        raise ConfigError(
            "distributed: BYTEPS_ENABLE_ASYNC=1 is for byteps.torch in this version; unset it everywhere"
        )
    cast = Compression.fp16 if fp16 else Compression.none
    sent = [cast.compress(gradient) for gradient in gradients.values()]
    values = [value for value, _ in sent]
    group = group_of("push_pull", list(gradients), values, True, 0, compression_params, agree="gradients")
    results = [
        cast.decompress(value, dtype)
        for value, (_, dtype) in zip(run(group, values, rates if group.codec else None), sent, strict=True)
    ]
    return dict(zip(gradients, results, strict=True))
