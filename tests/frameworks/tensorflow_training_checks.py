"""Training with TensorFlow: tape, optimizers, variables, sessions of TensorFlow 1, and the strategy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from frame_suite import Array, check, check_before_init, close, data, raises

import byteps.tensorflow as bps
from byteps.errors import ConfigError, NotInitializedError
from byteps.tensorflow.distribute import MirroredStrategy
from byteps.worker import current
from byteps.worker.steps import Steps

v1 = tf.compat.v1


@check_before_init
def strategy_before_init() -> None:
    with raises(NotInitializedError, "MirroredStrategy"):
        MirroredStrategy()


def part(array: Array) -> Array:
    return array[bps.rank() :: bps.size()]


def variables(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        tf.Variable(rng.standard_normal(shape).astype("float32"), name=name)
        for name, shape in (("w1", (8, 16)), ("b1", (16,)), ("w2", (16, 3)), ("unused", (2,)))
    ]


def loss_of(weights: list[Any], x: Any, y: Any) -> Any:
    logits = tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def trained(seed: int, x: Array, y: Array, distributed: bool, graph: bool) -> list[Array]:
    weights = variables(seed)
    if distributed:
        bps.broadcast_variables(weights, root_rank=0)

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(weights, x, y)
        if distributed:
            tape = bps.DistributedGradientTape(tape)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            assert (gradient is None) == weight.name.startswith("unused")
            if gradient is not None:
                weight.assign_sub(0.1 * gradient)

    run = tf.function(step) if graph else step
    for _ in range(10):
        run(tf.constant(x), tf.constant(y))
    return [weight.numpy() for weight in weights]


@check
def tape_against_one_process() -> None:
    x, y = data()
    wanted = trained(0, x, y, distributed=False, graph=False)
    for graph in (False, True):
        close(trained(bps.rank(), part(x), part(y), distributed=True, graph=graph), wanted)


@check
def steps_are_known_without_help() -> None:
    x, y = data()
    for graph in (False, True):
        seen: list[int] = []
        current.required("a test").steps = Steps(seen.append)
        trained(0, part(x), part(y), distributed=True, graph=graph)
        assert seen == list(range(1, 11)), seen


def clipped(seed: int, x: Array, y: Array, distributed: bool, graph: bool) -> list[Array]:
    weights = variables(seed)[:3]

    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(weights, x, y)
        if distributed:
            tape = bps.DistributedGradientTape(tape)
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 0.1)
        tf.debugging.assert_greater(norm, 0.1)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(tf.clip_by_value(gradient, -0.01, 0.01))

    run = tf.function(step) if graph else step
    for _ in range(10):
        run(tf.constant(x), tf.constant(y))
    return [weight.numpy() for weight in weights]


@check
def clipping_after_the_tape_against_one_process() -> None:
    x, y = data()
    wanted = clipped(0, x, y, distributed=False, graph=False)
    for graph in (False, True):
        got = clipped(0, part(x), part(y), distributed=True, graph=graph)
        close(got, wanted)
        for index, weight in enumerate(got):  # alike on both ranks, bit for bit
            other = bps.broadcast(weight.copy(), 0, name=f"clipped {graph} {index}")
            np.testing.assert_array_equal(weight, other)


@check
def different_graphs_are_named() -> None:
    weight = tf.Variable(tf.ones(3), name=f"weight{bps.rank()}")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight)
        return bps.DistributedGradientTape(tape).gradient(loss, [weight])

    with raises(tf.errors.UnknownError, "weight0", "weight1", "rank 0", "rank 1", "number 1"):
        step()
    bps.barrier()
    # A rank with one gradient more, in eager mode.
    with tf.GradientTape(persistent=True) as tape:
        both = [tf.Variable(tf.ones(2), name="first"), tf.Variable(tf.ones(2), name="second")]
        loss = tf.reduce_sum(both[0] + both[1])
    tape = bps.DistributedGradientTape(tape)
    with raises(Exception, "Gradient.second", "nothing"):
        tape.gradient(loss, both[: bps.rank() + 1])


@check
def the_same_gradients_twice_in_a_graph() -> None:
    weight = tf.Variable(tf.zeros(2), name="unrolled")

    @tf.function
    def steps() -> None:
        for turn in range(3):  # unrolled
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight) * float(4 ** bps.rank() + turn)
            tape = bps.DistributedGradientTape(tape)
            weight.assign_add(tape.gradient(loss, weight))

    steps()
    np.testing.assert_array_equal(weight.numpy(), [10.5, 10.5])  # 2.5 + 3.5 + 4.5


@check
def variables_of_every_dtype() -> None:
    kinds = ("float64", "float16", "bfloat16", "int32", "uint32", "bool", "int16")
    found = [tf.Variable(tf.cast([[bps.rank(), 1]], kind), name=kind) for kind in kinds]

    @tf.function
    def in_a_graph() -> None:
        bps.broadcast_variables(found, root_rank=1, prefix="graph ")

    for run in (lambda: bps.broadcast_variables(found, root_rank=1), in_a_graph):
        for variable in found:
            variable.assign(tf.cast([[bps.rank(), 1]], variable.dtype))
        run()
        for variable in found:
            np.testing.assert_array_equal(tf.cast(variable, "int32").numpy(), [[1, 1]])


def session_weights(seed: int, x: Array, y: Array, distributed: bool, clips: bool = False) -> Array:
    with tf.Graph().as_default():
        rng = np.random.default_rng(seed)
        weights = [
            v1.get_variable(
                "w", initializer=rng.standard_normal((8, 3)).astype("float32"), use_resource=bool(kind)
            )
            if kind
            else v1.get_variable("b", initializer=np.zeros(3, "float32"), use_resource=False)
            for kind in (1, 0)
        ]
        logits = tf.constant(x) @ weights[0] + weights[1]
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.constant(y), logits=logits)
        )
        optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
        hooks = []
        if distributed:
            optimizer = bps.DistributedOptimizer(optimizer)
            hooks = [bps.BroadcastGlobalVariablesHook(0)]
        counter = v1.train.get_or_create_global_step()
        if clips:
            gradients, own = zip(*optimizer.compute_gradients(loss), strict=True)
            gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
            train = optimizer.apply_gradients(zip(gradients, own, strict=True), global_step=counter)
        else:
            train = optimizer.minimize(loss, global_step=counter)
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            for _ in range(8):
                session.run(train)
            values: Array = np.vstack(session.run(weights))
            return values


@check
def a_session_of_tensorflow_1() -> None:
    x, y = data()
    for clips in (False, True):
        wanted = session_weights(0, x, y, False, clips)
        close([session_weights(bps.rank(), part(x), part(y), True, clips)], [wanted])


@check
def an_optimizer_is_wrapped_once() -> None:
    optimizer = bps.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1))
    assert isinstance(optimizer, v1.train.GradientDescentOptimizer)
    for wrapped in (optimizer, bps.DistributedOptimizer(keras.optimizers.SGD())):
        with raises(ConfigError, "once"):
            bps.DistributedOptimizer(wrapped)


def model(seed: int, optimizer: Any = None) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.Input((8,)),
        keras.layers.Dense(16, "relu", name="a"),
        keras.layers.BatchNormalization(name="n"),
        keras.layers.Dense(3, name="b"),
    ]
    made = keras.Sequential(layers[:2] + layers[3:], name="net")
    made.compile(
        optimizer=optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return made


@check
def the_strategy_against_one_process() -> None:
    x, y = data()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True)
    alone = model(0)
    wanted = alone.fit(batches, epochs=3, verbose=0, shuffle=False).history
    strategy = MirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        mirrored = model(bps.rank())  # rank 0's values, whatever the seed
    got = mirrored.fit(batches, epochs=3, verbose=0, shuffle=False).history
    close(mirrored.get_weights(), alone.get_weights())
    close([got["loss"], got["accuracy"]], [wanted["loss"], wanted["accuracy"]])
    close(mirrored.evaluate(batches, verbose=0), alone.evaluate(batches, verbose=0))


@check
def the_strategy_clips_as_those_of_tensorflow_and_does_not_scale() -> None:
    x, y = data()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True)
    strategy = MirroredStrategy()
    with strategy.scope():
        clipping = model(0, keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.05))
    clipping.fit(batches, epochs=2, verbose=0, shuffle=False)
    for index, weight in enumerate(clipping.get_weights()):  # alike on both ranks, bit for bit
        other = bps.broadcast(weight.copy(), 0, name=f"clipped by the strategy {index}")
        np.testing.assert_array_equal(weight, other)
    scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    with strategy.scope():
        scaled = model(0, scaling)
    with raises(ConfigError, "MirroredStrategy", "DistributedOptimizer(keras.optimizers.LossScaleOptimizer("):
        scaled.fit(batches, epochs=1, verbose=0)


@check
def the_strategy_in_a_loop_of_ones_own() -> None:
    strategy = MirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(tf.ones(2) * (bps.rank() + 5))
    np.testing.assert_array_equal(weight.numpy(), [5, 5])

    @tf.function
    def step(values: Any) -> Any:
        return strategy.run(lambda value: tf.reduce_sum(value), args=(values,))

    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.range(1, 9).batch(4))
    totals = [float(strategy.reduce("SUM", step(batch), axis=None)) for batch in batches]
    assert totals == [10.0, 26.0]
    context = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.from_tensors(context.input_pipeline_id)
    )
    assert [int(each) for each in context] == [bps.rank()]
    with raises(ConfigError, "2 devices"):
        MirroredStrategy(["/cpu:0", "/cpu:1"])
