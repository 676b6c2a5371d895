"""Operations of the TensorFlow plugin: eager and in graphs; what is refused, and what it says."""

from __future__ import annotations

import types
import warnings
from typing import Any

import numpy as np
import tensorflow as tf
from frame_suite import check, check_before_init, raises

import byteps.tensorflow as bps
from byteps.errors import ConfigError, NotInitializedError, UnsupportedTensorError
from byteps.plugin.tensorflow.needs import check as check_tensorflow
from byteps.tensor import dtypes
from byteps.testing import exact


def mine(shape: tuple[int, ...] = (3,), dtype: str = "float32", salt: int = 0) -> Any:
    return tf.cast(exact.contribution(bps.rank(), shape, signed=dtype != "uint8", salt=salt), dtype)


def is_total(got: Any, shape: tuple[int, ...] = (3,), dtype: str = "float32", salt: int = 0) -> None:
    wanted = exact.total(bps.size(), shape, signed=dtype != "uint8", salt=salt)
    np.testing.assert_array_equal(tf.cast(got, "float64").numpy(), wanted)


@check_before_init
def before_init() -> None:
    with raises(NotInitializedError, "push_pull", "init()"):
        bps.push_pull(tf.ones(3))
    with raises(NotInitializedError, "init()"):
        tf.function(lambda: bps.push_pull(tf.ones(3)))()
    with raises(NotInitializedError, "DistributedGradientTape"):
        bps.DistributedGradientTape(tf.GradientTape())
    with raises(NotInitializedError, "broadcast_variables"):
        bps.broadcast_variables([], 0)


@check
def every_dtype_in_a_graph() -> None:
    for dtype in dtypes.NAMES:

        @tf.function
        def both(value: Any, dtype: str = dtype) -> Any:
            total = bps.push_pull(value, average=False, name=f"{dtype} total")
            return total, bps.push_pull(value, average=True, name=f"{dtype} average")

        for salt in range(3):  # several rounds of one graph
            total, average = both(mine((5, 7), dtype, salt))
            is_total(total, (5, 7), dtype, salt)
            whole = "int" in dtype
            wanted = exact.average(2, (5, 7), whole=whole, signed=dtype != "uint8", salt=salt)
            np.testing.assert_array_equal(tf.cast(average, "float64").numpy(), wanted)
            assert total.dtype == average.dtype == dtype and total.shape == (5, 7)


@check
def every_shape_in_a_graph() -> None:
    for shape in [(), (0,), (3, 0, 2), (1,), (33, 129)]:
        step = tf.function(lambda value, shape=shape: bps.push_pull(value, False, f"shape {shape}"))
        got = step(mine(shape))
        assert got.shape == shape
        is_total(got, shape)


@check
def a_shape_that_is_known_only_when_it_runs() -> None:
    step = tf.function(
        lambda value: bps.push_pull(value, False, "unknown"), input_signature=[tf.TensorSpec([None, 2])]
    )
    for rows in (3, 5, 3, 0, 4):
        is_total(step(mine((rows, 2))), (rows, 2))


@check
def a_nest_travels_together() -> None:
    @tf.function
    def step(value: Any) -> Any:
        return bps.push_pull({"a": value, "b": [value + 1, value * 2]}, average=False, name="nest")

    got = step(mine())
    is_total(got["a"])
    is_total(got["b"][0] - 2)
    is_total(got["b"][1] / 2)
    assert bps.push_pull([], name="nothing") == []


@check
def a_hundred_gradients_wait_once() -> None:
    @tf.function
    def step(value: Any) -> Any:
        return bps.push_pull([value * tf.cast(i + 1, value.dtype) for i in range(100)], False, "hundred")

    for index, got in enumerate(step(mine((1000,)))):
        is_total(got / (index + 1), (1000,))
    operations = step.get_concrete_function(mine((1000,))).graph.get_operations()
    names = [each.name for each in operations if each.type == "PyFunc"]
    assert sum("byteps_begin" in name for name in names) == 7  # small ones begin together, 16 at most
    assert sum("byteps_finish" in name for name in names) == 1

    @tf.function
    def large(value: Any) -> Any:
        return bps.push_pull([value, value + 1, value[:10], value[:20], value + 2], False, "large")

    value = mine((600_000,))  # two of them are more than a partition
    one, two, small, _, three = large(value)
    for got, more in ((one, 0), (two, 2), (three, 4)):
        is_total(got - more, (600_000,))
    np.testing.assert_array_equal(small.numpy(), exact.total(2, (600_000,))[:10])
    operations = large.get_concrete_function(value).graph.get_operations()
    begins = [each for each in operations if "byteps_begin" in each.name]
    assert sorted(len(each.inputs) for each in begins) == [1, 1, 3]


@check
def without_a_name_in_graphs() -> None:
    @tf.function
    def step(value: Any) -> Any:
        return bps.push_pull(value, False), bps.push_pull(value + 1, False), bps.push_pull(value[:1], False)

    for salt in range(2):
        one, two, three = step(mine(salt=salt))
        is_total(one, salt=salt)
        is_total(two - 2, salt=salt)
        np.testing.assert_array_equal(three.numpy(), exact.total(2, (3,), salt=salt)[:1])


@check
def inside_loops_and_branches() -> None:
    @tf.function
    def step(value: Any) -> Any:
        total = tf.zeros_like(value)
        for _ in tf.range(4):
            total += bps.push_pull(value, False, "in a loop")
        if tf.reduce_sum(total) > -1e9:
            total += bps.push_pull(value, False, "in a branch")
        return total

    is_total(step(mine()) / 5)


@check
def one_rank_traces_again() -> None:
    step = tf.function(lambda value, count: bps.push_pull(value * count, False, "traced again"))
    for turn in range(4):
        count = 1.0 if bps.rank() == 0 else tf.constant(1.0) if turn % 2 else 1
        is_total(step(mine(salt=turn), count), salt=turn)


@check
def handles_in_eager_mode() -> None:
    handles = [bps.push_pull_async(mine(salt=i), False, f"handle {i}") for i in range(20)]
    for i in reversed(range(20)):
        is_total(bps.synchronize(handles[i]), salt=i)
        assert bps.poll(handles[i]) and bps.synchronize(handles[i]) is bps.synchronize(handles[i])
    with raises(ConfigError, "push_pull_async", "graph"):
        tf.function(lambda: bps.push_pull_async(tf.ones(3)))()


@check
def gradient_of_push_pull() -> None:
    value = tf.Variable(tf.cast(bps.rank() + 1, "float32") * tf.ones(2))

    def gradient(name: str) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(bps.push_pull(value, average=False, name=name) ** 2)
        return tape.gradient(loss, value)

    np.testing.assert_array_equal(gradient("eager loss").numpy(), [12, 12])  # 2 * (1 + 2), from both ranks
    np.testing.assert_array_equal(tf.function(gradient)("graph loss").numpy(), [12, 12])


@check
def what_is_refused_when_a_graph_is_made() -> None:
    for value in (tf.constant(["text"]), tf.constant([1j], "complex64"), tf.constant([True])):
        with raises(UnsupportedTensorError, "bad", value.dtype.name, "bfloat16"):
            tf.function(lambda value=value: bps.push_pull(value, name="bad")).get_concrete_function()
    with raises(Exception, "twice", "own name"):
        tf.function(
            lambda: bps.push_pull(tf.ones(2), name="twice") + bps.push_pull(tf.ones(2), name="twice")
        )()
    with raises(Exception, "XLA", "jit_compile=False"):
        tf.function(lambda: bps.push_pull(tf.ones(2), name="xla"), jit_compile=True)()
    with raises(ConfigError, "broadcast_variables"):
        bps.broadcast_global_variables(0)
    with raises(ConfigError, "root_rank"):
        bps.broadcast(tf.ones(2), root_rank=2, name="root")


@check
def ranks_that_disagree_in_a_graph() -> None:
    shape = [2 + bps.rank()]
    with raises(tf.errors.UnknownError, "DeclarationError", "differ in shape", "[2]", "[3]"):
        tf.function(lambda: bps.push_pull(tf.ones(shape), name="differ in shape"))()
    bps.barrier()
    again = tf.function(lambda: bps.push_pull(mine((2, 2)), False, name="differ in shape"))
    is_total(again(), (2, 2))  # the job goes on, and so does the name, once ranks agree


@check
def sparse_tensors_become_dense() -> None:
    slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([bps.rank()]), dense_shape=tf.constant([3, 2]))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for turn in range(2):
            got = bps.push_pull(slices, average=False, name=f"slices {turn}")
            np.testing.assert_array_equal(got.numpy(), [[1, 1], [1, 1], [0, 0]])
    assert ["sparse" in str(each.message) for each in seen].count(True) == 1


@check
def casts() -> None:
    value = tf.constant([1 / 3, 1e-3, 70000.0])
    half = tf.cast(tf.cast(value, "float16"), "float32").numpy()
    for name, step in (("eager", lambda run: run), ("graph", tf.function)):
        run = step(lambda value, name=name: bps.push_pull(value, name=name, compression=bps.Compression.fp16))
        np.testing.assert_array_equal(run(value).numpy(), half)


@check
def broadcast_of_all_kinds() -> None:
    for dtype in ("float32", "bfloat16", "int16", "uint32", "bool", "complex64"):
        value = tf.cast(tf.constant([[bps.rank(), 1], [0, bps.rank()]]), dtype)
        for run in (bps.broadcast, tf.function(bps.broadcast)):
            got = run(value, 1, name=f"{dtype} of 1")
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(tf.cast(got, "float64").numpy(), [[1, 1], [0, 1]])
    with raises(UnsupportedTensorError, "string"):
        bps.broadcast(tf.constant(["text"]), 0, name="text")


@check
def a_tensorflow_without_what_is_needed() -> None:
    with raises(ImportError, "numpy_function", "1.0"):
        check_tensorflow(types.SimpleNamespace(__version__="1.0"))
