"""Training with Keras 3 on the backend of KERAS_BACKEND: optimizer, callbacks, saved models."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
from frame_suite import COMPRESSION, HAS_CODECS, Array, check, check_before_init, close, data, raises

import byteps.keras as bps
from byteps.errors import ConfigError, DeclarationError, NotInitializedError
from byteps.keras import callbacks

BACKEND = keras.backend.backend()


@check_before_init
def before_init() -> None:
    with raises(NotInitializedError, "DistributedOptimizer"):
        bps.DistributedOptimizer(keras.optimizers.SGD())
    with raises(NotInitializedError, "load_model"):
        bps.load_model("nothing.keras")


def part(array: Array) -> Array:
    return array[bps.rank() :: bps.size()]


def model(seed: int, optimizer: Any, name: str = "net", **options: Any) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.Input((8,)),
        keras.layers.Dense(16, "relu", name="a"),
        keras.layers.Dense(3, name="b"),
    ]
    made = keras.Sequential(layers, name=name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)
    return made


def fit(made: Any, x: Array, y: Array, batch: int, epochs: int = 3, **more: Any) -> dict[str, list[float]]:
    history = made.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, **more).history
    return {name: [float(value) for value in values] for name, values in history.items()}


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01, clipnorm=1.0),
    "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    # All below what gradients have here, so that every step is clipped.
    "clipnorm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.05),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.SGD(0.1, momentum=0.9, clipvalue=0.01),
    "clipped_sum": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1, gradient_accumulation_steps=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1), initial_scale=1024.0
    ),
}


@check
def optimizers_against_one_process() -> None:
    x, y = data()
    start = [callbacks.BroadcastGlobalVariablesCallback(0), callbacks.MetricAverageCallback()]
    for name, make in OPTIMIZERS.items():
        alone = model(0, make(), name)
        wanted = fit(alone, x, y, 32)
        distributed = model(bps.rank(), bps.DistributedOptimizer(make()), name)
        # Every second sample, as the slices of a batch: 32 of the job are 16 of each rank.
        got = fit(distributed, part(x), part(y), 16, callbacks=start)
        # Adam divides by small numbers, and rounding differs.
        close(distributed.get_weights(), alone.get_weights(), 1e-4 if name == "adam" else 5e-6)
        close([got["loss"], got["accuracy"]], [wanted["loss"], wanted["accuracy"]], 1e-4)
        alike(distributed.get_weights(), name)


def alike(weights: list[Array], name: str) -> None:
    """On both ranks, bit for bit."""
    for index, weight in enumerate(weights):
        other = bps.broadcast(weight.copy(), 0, name=f"alike {name} {index}")
        np.testing.assert_array_equal(weight, other)


@check
def it_is_the_same_optimizer() -> None:
    plain = keras.optimizers.SGD(0.1)
    optimizer = bps.DistributedOptimizer(plain)
    assert optimizer is plain and isinstance(optimizer, keras.optimizers.SGD)
    with raises(ConfigError, "once"):
        bps.DistributedOptimizer(optimizer)
    with raises(ConfigError, "str", "keras.optimizers"):
        bps.DistributedOptimizer("sgd")
    with raises(ValueError, "compressor", "nonsense"):
        bps.DistributedOptimizer(keras.optimizers.SGD(), compression_params={"compressor": "nonsense"})
    again = type(optimizer).from_config(optimizer.get_config())
    assert type(again) is type(optimizer)


@check
def saved_and_loaded() -> None:
    x, y = data()
    folder = tempfile.mkdtemp()
    path = Path(folder) / "model.keras"
    distributed = model(0, bps.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), "saved")
    fit(distributed, part(x), part(y), 16, 2)
    distributed.save(path)
    plain = keras.models.load_model(path)
    assert not hasattr(plain.optimizer, "_byteps")  # no need of byteps to load it
    loaded = bps.load_model(path)
    assert isinstance(loaded.optimizer, keras.optimizers.SGD) and hasattr(loaded.optimizer, "_byteps")
    assert int(loaded.optimizer.iterations) == int(distributed.optimizer.iterations) == 4
    fit(distributed, part(x), part(y), 16, 2)
    fit(loaded, part(x), part(y), 16, 2)  # momentum was restored: the same numbers
    close(loaded.get_weights(), distributed.get_weights())


@check
def broadcasts() -> None:
    distributed = model(bps.rank(), bps.DistributedOptimizer(keras.optimizers.Adam()), "broadcast")
    distributed.optimizer.build(distributed.trainable_variables)
    bps.broadcast_global_variables(1)
    alone = model(1, "sgd", "other")
    close(distributed.get_weights(), alone.get_weights(), 0)
    state = keras.Variable(np.array([bps.rank(), 7], "uint32"), dtype="uint32", trainable=False, name="state")
    bps.broadcast_variables([state], root_rank=1)
    assert keras.ops.convert_to_numpy(state).tolist() == [1, 7]


@check
def rates() -> None:
    x, y = data()
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(0.4, momentum=0.9))
    distributed = model(0, optimizer, "rates")
    warm = callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=2)
    later = callbacks.LearningRateScheduleCallback(
        0.4, multiplier=lambda epoch: 0.1 ** (epoch - 2), start_epoch=3
    )
    got = fit(distributed, part(x), part(y), 16, 5, callbacks=[warm, later])
    # Two batches in an epoch: 1/2 + 1/8, 3/4 | 7/8, 1 | 1 | 1/10 | 1/100 of the rate.
    np.testing.assert_allclose(got["lr"], [0.3, 0.4, 0.4, 0.04, 0.004], rtol=1e-6)


@check
def momentum_is_corrected() -> None:
    weight = keras.Variable(np.zeros(1, "float32"), name="corrected")
    optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
    optimizer.build([weight])
    optimizer.apply([keras.ops.convert_to_tensor([1.0])], [weight])  # velocity: -0.1
    schedule = callbacks.LearningRateScheduleCallback(0.1, multiplier=10)

    class Model:
        pass

    holder: Any = Model()
    holder.optimizer = optimizer
    schedule._model = holder
    schedule.on_epoch_begin(0)
    close(
        [keras.ops.convert_to_numpy(optimizer.momentums[0])], [np.array([-1.0])]
    )  # as if the rate had been 1


@check
def halves_travel() -> None:
    weight = keras.Variable(np.zeros(2, "float32"), name="halves")
    optimizer = bps.DistributedOptimizer(keras.optimizers.SGD(1.0), compression=bps.Compression.fp16)
    optimizer.build([weight])
    optimizer.apply([keras.ops.convert_to_tensor(np.array([1 / 3, 1e-5], "float32"))], [weight])
    wanted = -np.array([1 / 3, 1e-5], "float32").astype("float16").astype("float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), wanted)


@check
def momentum_of_the_core_is_that_of_sgd() -> None:
    if not HAS_CODECS:
        return
    x, y = data()

    def sgd() -> Any:
        return keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01)

    alone = model(0, sgd(), "moved")
    fit(alone, x, y, 32)
    optimizer = bps.DistributedOptimizer(sgd(), compression_params={"momentum": "nesterov"})
    distributed = model(0, optimizer, "moved")
    fit(distributed, part(x), part(y), 16)
    close(distributed.get_weights(), alone.get_weights(), 1e-5)
    assert optimizer.get_config()["momentum"] == 0.9 and optimizer.get_config()["nesterov"]
    with raises(ConfigError, "momentum", "Adam"):
        bps.DistributedOptimizer(keras.optimizers.Adam(), compression_params={"momentum": "nesterov"})
    for option in ("clipnorm", "global_clipnorm", "clipvalue", "gradient_accumulation_steps"):
        clipping = keras.optimizers.SGD(0.1, momentum=0.9, **{option: 2})
        with raises(ConfigError, option, "before its momentum"):
            bps.DistributedOptimizer(clipping, compression_params={"momentum": "nesterov"})


@check
def compressed_training_learns() -> None:
    if not HAS_CODECS:
        return
    x, y = data()
    for number, params in enumerate(COMPRESSION):
        sgd = keras.optimizers.SGD(0.1, momentum=0.9)
        distributed = model(
            0, bps.DistributedOptimizer(sgd, compression_params=params), f"compressed{number}"
        )
        losses = fit(distributed, part(x), part(y), 16, 12)["loss"]
        assert losses[-1] < 0.8 * losses[0], (params, losses)
        alike(distributed.get_weights(), f"compressed {number}")


@check
def loss_scaling_is_around_the_exchange() -> None:
    x, y = data()
    keras.config.set_dtype_policy("mixed_float16")
    mixed = model(0, bps.DistributedOptimizer(keras.optimizers.SGD()), "mixed")  # and Keras scales around it
    keras.config.set_dtype_policy("float32")
    with raises(ConfigError, "mixed_float16", "DistributedOptimizer(keras.optimizers.LossScaleOptimizer("):
        fit(mixed, x, y, 16, 1)
    if BACKEND == "jax":
        return  # Keras has no apply() for it outside of fit()
    scaled = bps.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0)))
    weight = keras.Variable(np.zeros(2, "float32"), name="scaled")
    scaled.build([weight])
    scale = float(keras.ops.convert_to_numpy(scaled.scale_loss(1.0)))
    mine = np.full(2, np.inf if bps.rank() else scale, "float32")
    scaled.apply([keras.ops.convert_to_tensor(mine)], [weight])  # both ranks skip
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), [0, 0])


@check
def other_frameworks_are_not_loaded() -> None:
    others = {"tensorflow", "torch", "jax", "mxnet"} - {BACKEND}
    assert not others & set(sys.modules)
    if BACKEND == "tensorflow":
        import byteps.tensorflow.keras

        assert byteps.tensorflow.keras.DistributedOptimizer is bps.DistributedOptimizer
        distributed = model(0, bps.DistributedOptimizer(keras.optimizers.SGD()), "jit", jit_compile=True)
        assert not distributed.jit_compile


@check
def different_models_are_named() -> None:
    x, y = data()
    name = f"net{bps.rank()}"
    distributed = model(0, bps.DistributedOptimizer(keras.optimizers.SGD()), name)
    weight = distributed.trainable_variables[0]
    kinds: Any = (Exception,) if BACKEND != "torch" else DeclarationError
    path = weight.path
    with raises(kinds, "gradients", f"Gradient.{path}", "rank 0", "rank 1"):
        fit(distributed, part(x), part(y), 16, 1)
