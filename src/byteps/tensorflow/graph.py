"""A group of tensors exchanged by TensorFlow: at once in eager mode, as operations of a graph elsewhere.

In a graph every tensor has an operation of its own that begins with it and returns at once, as soon as the
tensor is computed. One more operation waits for all of them: so the tensors travel while others are computed,
none waits for the one before, and only one thread of TensorFlow's pool ever waits. If each had an operation
that waits, ranks could fill their pools with different ones and wait for each other for ever.

Nothing is compiled against TensorFlow: the operations are ``tf.numpy_function``, which gives the memory of a
tensor and takes the memory of a result without a copy.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from byteps._arrays import Array
from byteps._group import Group, Started
from byteps.errors import BytePSError, ConfigError

__all__ = ["is_graph_of_functions", "plain_python", "run", "to_array", "to_tensor"]

F = TypeVar("F", bound=Callable[..., Any])

_DLPACK_KINDS = "fiu"  # NumPy gives no others away


def plain_python(function: F) -> F:
    """Not to be rewritten by AutoGraph: our ifs are about the graph and not part of it."""
    converted: F = tf.autograph.experimental.do_not_convert(function)
    return converted


def run(group: Group, tensors: Sequence[Any], rates: tuple[Any, float | None] | None = None) -> list[Any]:
    """Exchange tensors of a group: the results, in the same order.

    ``rates`` are the learning rate, which may be a tensor, and the momentum that the core shall go by.
    """
    if not tensors:
        return []
    if tf.executing_eagerly():
        if rates is not None:
            group.rate(float(rates[0]), rates[1])
        return [to_tensor(array) for array in group.run([to_array(tensor) for tensor in tensors])]
    _refuse_xla(group)
    step = _Step(group, None if rates is None else rates[1])
    more = [] if rates is None else [tf.cast(rates[0], tf.float32)]
    tokens: list[Any] = [None] * len(tensors)
    # tf.function runs these in the order in which they are made: the gradients that come first, first.
    for index in reversed(range(len(tensors))):
        is_first = index == len(tensors) - 1
        inputs = [tensors[index], *(more if is_first else ())]
        tokens[index] = tf.numpy_function(step.begin(index, is_first), inputs, tf.int64, name="byteps_begin")
    results = tf.numpy_function(
        step.finish, tokens, [tensor.dtype for tensor in tensors], name="byteps_finish"
    )
    for result, tensor in zip(results, tensors, strict=True):
        result.set_shape(tensor.shape)
    return list(results)


def to_array(tensor: Any) -> Array:
    """The values of an eager tensor, without a copy where they are in host memory."""
    return np.asarray(tensor)


def to_tensor(array: Array) -> Any:
    """A tensor over the memory of an array that nobody else uses."""
    if array.dtype.kind in _DLPACK_KINDS and array.size:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


class _Step:
    """The operations of one group in one graph; the graph may run several times at once."""

    def __init__(self, group: Group, mu: float | None) -> None:
        self._group = group
        self._mu = mu
        self._numbers = itertools.count(1)
        self._started: dict[int, Started] = {}
        self._lock = threading.Lock()

    def begin(self, index: int, is_first: bool) -> Callable[..., Array]:
        """What the operation of one tensor does; the number it returns is for ``finish``."""

        @plain_python
        def begin(array: Array, lr: Array | None = None) -> Array:
            try:
                if lr is not None:
                    self._group.rate(float(lr), self._mu)
                question = self._group.ask() if is_first else None
                started = Started(self._group.start(index, np.asarray(array)), question)
            except BytePSError:
                self._forget()  # TensorFlow ends the step, and nobody will ask for the others
                raise
            with self._lock:
                number = next(self._numbers)
                self._started[number] = started
            return np.array(number, np.int64)

        return begin

    @plain_python
    def finish(self, *numbers: Array) -> list[Array]:
        """What the last operation does."""
        with self._lock:
            started = [self._started.pop(int(number)) for number in numbers]
        return self._group.finish(started)

    def _forget(self) -> None:
        with self._lock:
            self._started.clear()  # their memory lives until the network has done with it


def is_graph_of_functions() -> bool:
    """True inside ``tf.function``, which keeps the order of a program; a graph of TensorFlow 1 does not."""
    return hasattr(tf.compat.v1.get_default_graph(), "outer_graph")


def _refuse_xla(group: Group) -> None:
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        if context is not None and context.IsXLAContext():
            raise ConfigError(
                f"{group.verb} of {group.items[0].name}: this function is compiled by XLA, which cannot call "
                "the network; use tf.function without it, and in Keras model.compile(jit_compile=False)"
            )
        graph = getattr(graph, "outer_graph", None)
