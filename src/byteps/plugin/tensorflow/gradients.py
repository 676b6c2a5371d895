"""The gradients of a step: all are averaged over the ranks, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from byteps.errors import ConfigError
from byteps.plugin.tensorflow import graph, names, ops
from byteps.plugin.tensorflow.compression import Cast, Compression
from byteps.worker import current

__all__ = ["average_gradients", "refuse_async"]


@graph.plain_python
def average_gradients(
    gradients: Sequence[Any],
    variables: Sequence[Any],
    compression: Cast = Compression.none,
    compression_params: Mapping[str, object] | None = None,
    prefix: str = "Gradient.",
    rates: tuple[Any, float | None] | None = None,
) -> list[Any]:
    """The average of each gradient over all ranks; None stays None, and must be None on every rank.

    Names come from the variables. Ranks whose lists of gradients differ get a DeclarationError that says
    where. ``rates`` are the optimizer's learning rate and the momentum that is left to the core.
    """
    current.required("push_pull")
    present = [index for index, gradient in enumerate(gradients) if gradient is not None]
    own = names.of_variables(variables)
    again = names.occurrence(prefix + ",".join(own))
    found = [ops.dense(gradients[index], "push_pull", own[index]) for index in present]
    items = [
        ops.item(value, "push_pull", f"{prefix}{own[index]}{again}")
        for index, value in zip(present, found, strict=True)
    ]
    label = "gradients"
    if not tf.executing_eagerly() and not graph.is_graph_of_functions():
        label += names.occurrence("gradients of a graph")  # nothing says which of two groups runs first
    results = list(gradients)
    averages = ops.exchange(found, items, True, 0, compression_params, compression, label, rates)
    for index, value in zip(present, averages, strict=True):
        results[index] = value
    return results


def refuse_async(operation: str) -> None:
    """Say that asynchronous training needs another plugin."""
    if current.required(operation).config.enable_async:
        raise ConfigError(
            f"{operation}: BYTEPS_ENABLE_ASYNC=1 is for byteps.torch in this version; unset it everywhere"
        )
