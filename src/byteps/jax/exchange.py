"""A group of arrays exchanged by JAX: at once outside of ``jit``, in one ordered callback inside.

Inside ``jit`` one callback takes all arrays of a call, starts with all and waits for all. It is *ordered*:
JAX then runs the calls of all compiled functions in the order of the program, which is the same on all ranks.
Without that, XLA may run two of them in another order on each rank, and each would wait for the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from byteps.errors import UnsupportedTensorError
from byteps.plugin.group import Group, Item
from byteps.tensor import dtypes
from byteps.tensor.arrays import Array

__all__ = ["is_traced", "item", "run", "to_arrays", "to_jax"]


def is_traced(leaves: Sequence[Any]) -> bool:
    """True inside ``jit`` and under ``grad``: there are no values yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def item(name: str, leaf: Any, verb: str) -> Item:
    """What is known of an array; refuses what cannot be sent, when a function is traced."""
    dtype = jnp.result_type(leaf)
    number = dtypes.NUMBERS.get(str(dtype))
    if number is None:
        raise UnsupportedTensorError(
            f"{verb} of {name or 'an array without a name'}: its dtype is {dtype}, expected {dtypes.VALID}; "
            "convert it with array.astype()"
        )
    return Item(name, number, tuple(np.shape(leaf)))


def run(group: Group, leaves: Sequence[Any], rates: tuple[Any, float | None] | None = None) -> list[Any]:
    """Exchange arrays of a group: the results, in the same order.

    ``rates`` are the learning rate, which may be an array, and the momentum that the core shall go by.
    """
    if not leaves:
        return []
    if rates is not None:
        return _rated(group, list(leaves), *rates)
    if is_traced(leaves):
        return _differentiable(group, list(leaves))
    return to_jax(group.run(to_arrays(leaves)), leaves)


def to_arrays(leaves: Sequence[Any]) -> list[Array]:
    """The values of arrays, without a copy where they are in host memory."""
    return [np.asarray(leaf) for leaf in leaves]


def to_jax(arrays: Sequence[Array], like: Sequence[Any]) -> list[Any]:
    """Arrays of JAX over memory that nobody else uses, on the devices of ``like``."""
    placed = [leaf.sharding if isinstance(leaf, jax.Array) else None for leaf in like]
    return [
        jnp.asarray(array) if place is None else jax.device_put(array, place)
        for array, place in zip(arrays, placed, strict=True)
    ]


def _callback(group: Group, leaves: list[Any]) -> list[Any]:
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    results: list[Any] = io_callback(
        lambda *values: group.run(to_arrays(values)), shapes, *leaves, ordered=True
    )
    return results


def _rated(group: Group, leaves: list[Any], lr: Any, mu: float | None) -> list[Any]:
    """Of gradients, which nobody differentiates again: the rate goes with them."""
    if not is_traced([lr, *leaves]):
        group.rate(float(lr), mu)
        return to_jax(group.run(to_arrays(leaves)), leaves)

    def exchange(lr: Any, *values: Any) -> list[Array]:
        group.rate(float(lr), mu)
        return group.run(to_arrays(values))

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    results: list[Any] = io_callback(exchange, shapes, lr, *leaves, ordered=True)
    return results


def _differentiable(group: Group, leaves: list[Any]) -> list[Any]:
    """Every rank's result depends on every rank's arrays: so the backward pass is a push-pull too."""

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def exchange(values: list[Any]) -> list[Any]:
        return _callback(group, values)

    def forward(values: list[Any]) -> tuple[list[Any], None]:
        return _callback(group, values), None

    def backward(_: None, cotangents: list[Any]) -> tuple[list[Any]]:
        whole = [index for index, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        items = [group.items[index]._replace(name=f"{group.items[index].name}.gradient") for index in whole]
        reverse = Group("push_pull", items, average=group.average, priority=group.priority)
        results = list(cotangents)  # those of integers mean nothing, and stay
        for index, value in zip(whole, run(reverse, [cotangents[index] for index in whole]), strict=True):
            results[index] = value
        return (results,)

    exchange.defvjp(forward, backward)
    results: list[Any] = exchange(leaves)
    return results


def group_of(
    verb: str,
    names: Sequence[str],
    leaves: Sequence[Any],
    average: bool = True,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
    agree: str = "",
) -> Group:
    """The group of these arrays under these names."""
    items = [item(name, leaf, verb) for name, leaf in zip(names, leaves, strict=True)]
    return Group(
        verb,
        items,
        average=average,
        priority=priority,
        compression_params=compression_params,
        agree=agree,
    )
