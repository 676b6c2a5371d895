"""The operations of ``byteps.tensorflow``, in eager mode and in graphs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from byteps.errors import ConfigError, UnsupportedTensorError
from byteps.plugin.group import Converted, Group, Item
from byteps.plugin.tensorflow import graph, names
from byteps.plugin.tensorflow.compression import Cast, Compression
from byteps.tensor import dtypes
from byteps.worker import current
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.tensors import codec_of

__all__ = [
    "broadcast",
    "broadcast_all",
    "declare",
    "dense",
    "exchange",
    "item",
    "push_pull",
    "push_pull_async",
]

NUMBERS: dict[Any, int] = {getattr(tf, name): number for number, name in enumerate(dtypes.NAMES)}

_warned_of_sparse = False


@graph.plain_python
def push_pull(
    tensor: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
    compression: Cast = Compression.none,
) -> Any:
    """The average (or the sum) of every rank's ``tensor``, as a new tensor: see ``byteps.push_pull``.

        mean = bps.push_pull(gradient, name="layer1.kernel")
        means = bps.push_pull({"loss": loss, "accuracy": accuracy}, name="metrics")

    ``tensor`` may be a list, a dictionary or any nest of tensors that travel together. Inside ``tf.function``
    the name is made when the function is traced, and must be given once in a graph. Differentiable: the
    gradient is a push-pull too. Averages of integers are rounded toward zero. Errors inside a graph come as
    ``tf.errors.UnknownError`` with our text.
    """
    current.required("push_pull")
    tensors = [dense(each, "push_pull", name) for each in tf.nest.flatten(tensor)]
    own = names.of_operation("push_pull", name, [item(each, "push_pull", name or "") for each in tensors])
    items = [item(each, "push_pull", one) for each, one in zip(tensors, own, strict=True)]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run(*values: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            inner = f"{own[0]}.gradient"
            whole = push_pull(list(upstream), average, inner, priority, compression_params, compression)
            return whole if len(whole) > 1 else whole[0]

        results = exchange(values, items, average, priority, compression_params, compression)
        return (results if len(results) > 1 else results[0]), gradient

    if not tensors:
        return tensor
    results = run(*tensors)
    return tf.nest.pack_sequence_as(tensor, results if isinstance(results, (list, tuple)) else [results])


@graph.plain_python
def push_pull_async(
    tensor: Any,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Handle[Any]:
    """Start a push-pull in eager mode; ``synchronize(handle)`` gives a new tensor."""
    session = current.required("push_pull")
    if not tf.executing_eagerly():
        raise ConfigError(
            f"push_pull_async of {name or 'a tensor without a name'}: there are no handles inside a graph, "
            "where operations overlap by themselves; use push_pull, with a list for several tensors"
        )
    value = dense(tensor, "push_pull", name)
    dtype = item(value, "push_pull", name or "").dtype
    shape = tuple(value.shape)
    if name is None:
        name = session.tensor("push_pull", None, dtype, shape, codec_of(compression_params)).name
    group = Group(
        "push_pull",
        [Item(name, dtype, shape)],
        average=average,
        priority=priority,
        compression_params=compression_params,
    )
    return Converted(session, group.start(0, graph.to_array(value)), graph.to_tensor)


@graph.plain_python
def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """The exact bits of the root's ``tensor``, as a new tensor; works for every dtype but strings."""
    current.required("broadcast")
    value = tf.convert_to_tensor(tensor)
    own = names.of_operation("broadcast", name, [item(_as_numbers(value), "broadcast", name or "")])
    return broadcast_all([value], own, root_rank)[0]


def broadcast_all(tensors: Sequence[Any], own: Sequence[str], root_rank: int) -> list[Any]:
    """Broadcast several tensors at once."""
    sent = [_as_numbers(tensor) for tensor in tensors]
    items = [item(each, "broadcast", name) for each, name in zip(sent, own, strict=True)]
    got = graph.run(Group("broadcast", items, root=root_rank), sent)
    return [_as_before(each, tensor) for each, tensor in zip(got, tensors, strict=True)]


def declare(
    name: str | Mapping[str, Any],
    tensor: Any = None,
    compression_params: Mapping[str, object] | None = None,
) -> None:
    """Declare tensors or variables ahead of their first use, with one message: see ``byteps.declare``."""
    session = current.required("declare")
    codec = codec_of(compression_params)
    given = {name: tensor} if isinstance(name, str) else name
    items = [item(value, "declare", each) for each, value in given.items() if value is not None]
    session.declare(
        Spec(each.name, each.dtype, each.shape, codec) for each in items if each.shape is not None
    )


def exchange(
    tensors: Sequence[Any],
    items: Sequence[Item],
    average: bool = True,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
    compression: Cast = Compression.none,
    agree: str = "",
    rates: tuple[Any, float | None] | None = None,
) -> list[Any]:
    """Push-pull of dense tensors together. With ``agree`` ranks whose lists differ are told so."""
    sent = [compression.compress(tensor) for tensor in tensors]
    sent_items = [each._replace(dtype=NUMBERS[one.dtype]) for each, (one, _) in zip(items, sent, strict=True)]
    group = Group(
        "push_pull",
        sent_items,
        average=average,
        priority=priority,
        compression_params=compression_params,
        agree=agree,
    )
    results = graph.run(group, [one for one, _ in sent], rates if group.codec else None)
    return [compression.decompress(one, context) for one, (_, context) in zip(results, sent, strict=True)]


def dense(tensor: Any, verb: str, name: str | None) -> Any:
    """``tensor`` as a tensor; rows of IndexedSlices that nobody used are sent as zeros."""
    global _warned_of_sparse
    if isinstance(tensor, tf.IndexedSlices):
        if not _warned_of_sparse:
            _warned_of_sparse = True
            warnings.warn(
                f"{verb} of {name or tensor.values.name}: it is sparse (tf.IndexedSlices) and converted to a "
                "dense tensor, here and for every other sparse tensor",
                stacklevel=3,
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorFlow says the same, with less
            return tf.convert_to_tensor(tensor)
    return tf.convert_to_tensor(tensor)


def item(tensor: Any, verb: str, name: str) -> Item:
    """What is known of a tensor; refuses, when the graph is made, what cannot be sent."""
    dtype = tf.as_dtype(tensor.dtype)
    number = NUMBERS.get(dtype)
    if number is None:
        raise UnsupportedTensorError(
            f"{verb} of {name or 'a tensor without a name'}: its dtype is {dtype.name}, expected "
            f"{dtypes.VALID}; convert it with tf.cast()"
        )
    shape = tf.TensorShape(tensor.shape)
    return Item(name, number, tuple(shape.as_list()) if shape.is_fully_defined() else None)


def _as_numbers(tensor: Any) -> Any:
    """The same bits in a dtype that travels."""
    if tensor.dtype in NUMBERS or tensor.dtype == tf.string:
        return tensor
    if tensor.dtype == tf.bool:
        return tf.cast(tensor, tf.uint8)
    return tf.bitcast(tensor, tf.uint8)


def _as_before(got: Any, tensor: Any) -> Any:
    if got.dtype == tensor.dtype:
        return got
    result = tf.cast(got, tf.bool) if tensor.dtype == tf.bool else tf.bitcast(got, tensor.dtype)
    result.set_shape(np.shape(tensor) if tf.executing_eagerly() else tensor.shape)
    return result
