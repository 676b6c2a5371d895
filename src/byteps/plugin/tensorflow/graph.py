"""A group of tensors exchanged by TensorFlow: at once in eager mode, as operations of a graph elsewhere.

In a graph an operation begins with a tensor as soon as it is computed, and returns at once; neighbours that
are small share one, because TensorFlow takes 0.1 ms to call Python. One more operation waits for all of them:
so the tensors travel while others are computed, none waits for the one before, and only one thread of
TensorFlow's pool ever waits. If each had an operation that waits, ranks could fill their pools with different
ones and wait for each other for ever.

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

from byteps.errors import BytePSError, ConfigError
from byteps.plugin.group import Group, Started
from byteps.tensor import dtypes
from byteps.tensor.arrays import Array
from byteps.tensor.tuning import TOGETHER_BYTES, TOGETHER_TENSORS

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
    tokens: list[Any] = []
    # tf.function runs these in the order in which they are made: the gradients that come first, first.
    for indices in reversed(_together(group)):
        is_first = not tokens
        inputs = [*(tensors[index] for index in indices), *(more if is_first else ())]
        begin = step.begin(indices, is_first)
        tokens.append(tf.numpy_function(begin, inputs, tf.int64, name="byteps_begin"))
    results = tf.numpy_function(
        step.finish, tokens[::-1], [tensor.dtype for tensor in tensors], name="byteps_finish"
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
        self._started: dict[int, list[Started]] = {}
        self._lock = threading.Lock()

    def begin(self, indices: Sequence[int], is_first: bool) -> Callable[..., Array]:
        """What the operation of some tensors does; the number it returns is for ``finish``."""

        def begin(*arrays: Array) -> Array:  # and the learning rate, where the core wants it
            try:
                if len(arrays) > len(indices):
                    self._group.rate(float(arrays[-1]), self._mu)
                question = self._group.ask() if is_first else None
                handles = [self._group.start(i, np.asarray(a)) for i, a in zip(indices, arrays, strict=False)]
            except BytePSError:
                self._forget()  # TensorFlow ends the step, and nobody will ask for the others
                raise
            started = [Started(handle, None) for handle in handles]
            started[0] = Started(handles[0], question)
            with self._lock:
                number = next(self._numbers)
                self._started[number] = started
            return np.array(number, np.int64)

        return begin

    def finish(self, *numbers: Array) -> list[Array]:
        """What the last operation does."""
        with self._lock:
            started = [one for number in numbers for one in self._started.pop(int(number))]
        return self._group.finish(started)

    def _forget(self) -> None:
        with self._lock:
            self._started.clear()  # their memory lives until the network has done with it


def _together(group: Group) -> list[list[int]]:
    """Which tensors begin in one operation: neighbours that are no more than a partition together; pure."""
    found: list[list[int]] = []
    room = 0
    for index, (_, dtype, shape) in enumerate(group.items):
        nbytes = TOGETHER_BYTES if shape is None else dtypes.nbytes(dtype, shape)
        if not found or nbytes > room or len(found[-1]) == TOGETHER_TENSORS:
            found.append([])
            room = TOGETHER_BYTES
        found[-1].append(index)
        room -= nbytes
    return found


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
