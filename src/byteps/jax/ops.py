"""The operations of ``byteps.jax`` on arrays and trees of arrays, inside and outside of ``jit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from byteps.errors import ConfigError, UnsupportedTensorError
from byteps.jax.exchange import group_of, is_traced, item, run, to_arrays, to_jax
from byteps.plugin.group import Converted, Group, Item
from byteps.tensor import dtypes
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.tensors import codec_of

__all__ = ["broadcast", "declare", "named_leaves", "push_pull", "push_pull_async"]


def push_pull(
    tree: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Any:
    """The average (or the sum) of every rank's arrays, as a new tree: see ``byteps.push_pull``.

        gradients = bps.push_pull(gradients, name="gradients")

    All arrays of the tree travel together, named after their place in it. Inside ``jit`` names are made when
    the function is traced; without a name it is made from the shape of the tree, so calls of the same shape
    must come in the same order on all ranks, which they do. Differentiable. Not under ``vmap``, and not in a
    function that runs on several devices of one process. Averages of integers are rounded toward zero.

    Errors inside ``jit`` come as ``jax.errors.JaxRuntimeError`` with our text.
    """
    current.required("push_pull")
    leaves, structure = jax.tree.flatten(tree)
    names = _names("push_pull", tree, name, is_traced(leaves))
    group = group_of("push_pull", names, leaves, average, priority, compression_params)
    return jax.tree.unflatten(structure, run(group, leaves))


def push_pull_async(
    tree: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Handle[Any]:
    """Start a push-pull outside of ``jit``; ``synchronize(handle)`` gives the new tree."""
    session = current.required("push_pull")
    leaves, structure = jax.tree.flatten(tree)
    if is_traced(leaves):
        raise ConfigError(
            f"push_pull_async of {name or 'a tree without a name'}: there are no handles inside jit; use "
            "push_pull, with all arrays in one tree"
        )
    names = _names("push_pull", tree, name, False)
    group = group_of("push_pull", names, leaves, average, priority, compression_params)
    started = group.run_async(to_arrays(leaves))
    handles = [one.handle for one in started]
    return Converted(
        session, _All(session, handles), lambda arrays: jax.tree.unflatten(structure, to_jax(arrays, leaves))
    )


class _All(Handle[Any]):
    """Several handles as one."""

    __slots__ = ("_handles",)

    def __init__(self, session: Any, handles: Sequence[Handle[Any]]) -> None:
        super().__init__(session, None, None, None)
        self._handles = handles

    def done(self) -> bool:
        return all(handle.done() for handle in self._handles)

    def wait(self) -> Any:
        return [handle.wait() for handle in self._handles]


def broadcast(tree: Any, root_rank: int, name: str | None = None) -> Any:
    """The exact bits of the root's arrays, as a new tree; outside of ``jit``, for every dtype."""
    current.required("broadcast")
    leaves, structure = jax.tree.flatten(tree)
    if is_traced(leaves):
        raise ConfigError(
            f"broadcast of {name or 'a tree without a name'}: it changes what ranks start from, and works "
            "outside of jit only"
        )
    names = _names("broadcast", tree, name, False)
    return jax.tree.unflatten(structure, broadcast_leaves(leaves, names, root_rank))


def broadcast_leaves(
    leaves: Sequence[Any], names: Sequence[str], root_rank: int, agree: str = ""
) -> list[Any]:
    """Broadcast several arrays or numbers at once; a number stays a number of Python."""
    values = [_value(leaf, name) for leaf, name in zip(leaves, names, strict=True)]
    sent = [
        value if str(value.dtype) in dtypes.NUMBERS else value.reshape(-1).view(np.uint8) for value in values
    ]
    items = [
        Item(name, dtypes.NUMBERS[str(value.dtype)], value.shape)
        for name, value in zip(names, sent, strict=True)
    ]
    got = Group("broadcast", items, root=root_rank, agree=agree).run(sent)
    arrays = [one.view(value.dtype).reshape(value.shape) for one, value in zip(got, values, strict=True)]
    return [
        type(leaf)(array[()]) if isinstance(leaf, (bool, int, float)) else result
        for leaf, array, result in zip(leaves, arrays, to_jax(arrays, leaves), strict=True)
    ]


def _value(leaf: Any, name: str) -> np.ndarray[Any, Any]:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise UnsupportedTensorError(
            f"broadcast of {name}: it is a random key; pass jax.random.key_data(key), or make it from a seed"
        )
    return np.asarray(leaf, order="C")


def declare(
    name: str | Mapping[str, Any],
    tree: Any = None,
    compression_params: Mapping[str, object] | None = None,
) -> None:
    """Declare arrays ahead of their first use, with one message: see ``byteps.declare``."""
    session = current.required("declare")
    codec = codec_of(compression_params)
    given = {name: tree} if isinstance(name, str) else name
    items = [
        item(one, leaf, "declare")
        for each, value in given.items()
        if value is not None
        for one, leaf in named_leaves(value, each)
    ]
    session.declare(Spec(each.name, each.dtype, each.shape or (), codec) for each in items)


def named_leaves(tree: Any, name: str) -> list[tuple[str, Any]]:
    """A name for each array: that of the tree and its place in it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(f"{name}{jax.tree_util.keystr(path)}", leaf) for path, leaf in leaves]


def _names(verb: str, tree: Any, name: str | None, traced: bool) -> list[str]:
    leaves = jax.tree.leaves(tree)
    if name is None and leaves:
        if traced:
            kinds = ",".join(f"{jnp.result_type(leaf)}{list(np.shape(leaf))}" for leaf in leaves)
            name = f"{verb} in jit {kinds}"
        else:
            first = np.asarray(leaves[0])
            dtype = dtypes.NUMBERS.get(str(first.dtype), dtypes.NUMBERS["uint8"])
            name = current.required(verb).tensor(verb, None, dtype, first.shape).name
    return [one for one, _ in named_leaves(tree, name or verb)]
