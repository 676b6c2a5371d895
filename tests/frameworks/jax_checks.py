"""The JAX plugin: trees of arrays inside and outside of jit, gradients, optax, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from frame_suite import COMPRESSION, HAS_CODECS, check, check_before_init, close, data, raises

import byteps.jax as bps
from byteps.errors import ConfigError, DeclarationError, NotInitializedError, UnsupportedTensorError
from byteps.tensor import dtypes
from byteps.testing import exact
from byteps.worker import current
from byteps.worker.steps import Steps

jax.config.update("jax_enable_x64", True)


@check_before_init
def before_init() -> None:
    with raises(NotInitializedError, "push_pull", "init()"):
        bps.push_pull(jnp.ones(3))
    with raises(NotInitializedError, "push_pull"):
        jax.jit(bps.push_pull)(jnp.ones(3))
    with raises(NotInitializedError, "distributed"):
        bps.distributed(optax.sgd(0.1))


def mine(shape: tuple[int, ...] = (3,), dtype: str = "float32", salt: int = 0) -> Any:
    return jnp.asarray(exact.contribution(bps.rank(), shape, signed=dtype != "uint8", salt=salt)).astype(
        dtype
    )


def is_total(got: Any, shape: tuple[int, ...] = (3,), dtype: str = "float32", salt: int = 0) -> None:
    wanted = exact.total(2, shape, signed=dtype != "uint8", salt=salt)
    np.testing.assert_array_equal(np.asarray(got).astype("float64"), wanted)


@check
def every_dtype_inside_jit() -> None:
    tree = {dtype: mine((5, 7), dtype) for dtype in dtypes.NAMES}
    step = jax.jit(lambda tree, average: bps.push_pull(tree, average, f"dtypes {average}"), static_argnums=1)
    for _ in range(3):
        for dtype, got in step(tree, False).items():
            assert got.dtype == dtype
            is_total(got, (5, 7), dtype)
        for dtype, got in step(tree, True).items():
            wanted = exact.average(2, (5, 7), whole="int" in dtype, signed=dtype != "uint8")
            np.testing.assert_array_equal(np.asarray(got).astype("float64"), wanted)


@check
def every_shape_inside_jit() -> None:
    for shape in [(), (0,), (3, 0, 2), (1,), (33, 129)]:
        got = jax.jit(lambda value, shape=shape: bps.push_pull(value, False, f"shape {shape}"))(mine(shape))
        assert got.shape == shape
        is_total(got, shape)


@check
def trees() -> None:
    tree = {"a": mine(), "b": [mine(salt=1), (mine(salt=2), None)], "c": {}}
    for run in (bps.push_pull, jax.jit(bps.push_pull, static_argnums=(1, 2))):
        got = run(tree, False, "tree")
        assert jax.tree.structure(got) == jax.tree.structure(tree)
        is_total(got["a"])
        is_total(got["b"][1][0], salt=2)
    assert bps.push_pull({}) == {}


@check
def several_in_one_program_keep_their_order() -> None:
    @jax.jit
    def step(value: Any) -> Any:
        parts = [bps.push_pull(value * (i + 1), False, f"part {i}") for i in range(8)]
        unnamed = [
            bps.push_pull(value, False),
            bps.push_pull(value * 2, False),
        ]  # of one shape, and so one name
        return parts, unnamed

    for turn in range(5):
        parts, (one, two) = step(mine((1000,), salt=turn))
        for i, got in enumerate(parts):
            is_total(np.asarray(got) / (i + 1), (1000,), salt=turn)
        is_total(one, (1000,), salt=turn)
        is_total(np.asarray(two) / 2, (1000,), salt=turn)


@check
def inside_loops() -> None:
    @jax.jit
    def step(value: Any) -> Any:
        def body(total: Any, _: Any) -> Any:
            return total + bps.push_pull(value, False, "in a loop"), None

        return jax.lax.scan(body, jnp.zeros_like(value), length=4)[0]

    is_total(np.asarray(step(mine())) / 4)


@check
def programs_that_nobody_waits_for() -> None:
    step = jax.jit(lambda value: bps.push_pull(value, False, "in the background"))
    results = [step(mine((5000,), salt=i)) for i in range(20)]  # dispatched, not awaited
    for i, got in enumerate(results):
        is_total(got, (5000,), salt=i)


@check
def gradients_through_it() -> None:
    def loss(value: Any) -> Any:
        tree = bps.push_pull({"x": value, "i": jnp.arange(2)}, average=False, name="loss")
        return jnp.sum(tree["x"] ** 2) + jnp.sum(tree["i"])

    value = jnp.full(2, bps.rank() + 1.0)
    for gradient in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_array_equal(np.asarray(gradient(value)), [12, 12])  # 2 * (1 + 2), from both ranks


@check
def handles() -> None:
    started = [bps.push_pull_async({"x": mine(salt=i)}, False, f"handle {i}") for i in range(20)]
    for i in reversed(range(20)):
        is_total(bps.synchronize(started[i])["x"], salt=i)
        assert bps.poll(started[i])
    with raises(ConfigError, "push_pull_async", "jit"):
        jax.jit(lambda value: bps.push_pull_async(value))(mine())


def parameters(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return {
        "hidden": {"w": jnp.asarray(rng.standard_normal((8, 16)), "float32"), "b": jnp.zeros(16, "float32")},
        "out": jnp.asarray(rng.standard_normal((16, 3)), "float32"),
    }


def loss_of(params: Any, x: Any, y: Any) -> Any:
    logits = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def trained(optimizer: Any, params: Any, x: Any, y: Any) -> list[Any]:
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss_of)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(10):
        params, state = step(params, state)
    return jax.tree.leaves(params)


def in_front(optimizer: Any) -> Any:
    """The exchange as the first link of a chain."""
    return optax.chain(bps.distributed(optax.identity()), optimizer)


@check
def optax_against_one_process() -> None:
    x, y = data()
    mine = x[bps.rank() :: 2], y[bps.rank() :: 2]
    clip = optax.clip_by_global_norm(0.1)  # less than the norm of every step
    for make, wrap in (
        (lambda: optax.sgd(0.1, momentum=0.9), bps.distributed),
        (lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.01)), bps.distributed),
        (lambda: optax.chain(clip, optax.sgd(0.1, momentum=0.9)), bps.distributed),
        (lambda: optax.chain(clip, optax.clip(0.01), optax.sgd(0.1)), in_front),
        (lambda: optax.MultiSteps(optax.chain(clip, optax.sgd(0.1)), 2), bps.distributed),
        (lambda: optax.apply_if_finite(optax.chain(clip, optax.sgd(0.1)), 3), bps.distributed),
    ):
        wanted = trained(make(), parameters(0), x, y)
        params = bps.broadcast_parameters(parameters(bps.rank()), root_rank=0)
        got = trained(wrap(make()), params, *mine)
        close(got, wanted, 2e-5)
        close(got, bps.broadcast(got, 0), 0)  # alike on both ranks, bit for bit


@check
def a_step_that_is_not_finite_on_one_rank_is_skipped_on_all() -> None:
    optimizer = bps.distributed(optax.apply_if_finite(optax.sgd(1.0), 3))
    params = {"w": jnp.zeros(2, "float32")}
    state = optimizer.init(params)
    for value, wanted in ((1.0, -1.0), (np.inf if bps.rank() else 1.0, -1.0), (1.0, -2.0)):
        updates, state = jax.jit(optimizer.update)({"w": jnp.full(2, value, "float32")}, state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_array_equal(params["w"], [wanted, wanted])


@check
def different_trees_are_named() -> None:
    optimizer = bps.distributed(optax.sgd(0.1))
    gradients = {"same": jnp.ones(2), f"w{bps.rank()}": jnp.ones(2)}
    with raises(DeclarationError, "Gradient.['w0']", "Gradient.['w1']", "number 2 of 2"):
        optimizer.update(gradients, optimizer.init(gradients))
    with raises(jax.errors.JaxRuntimeError, "Gradient.['w0']", "Gradient.['w1']"):
        jax.block_until_ready(jax.jit(lambda tree: optimizer.update(tree, optimizer.init(tree)))(gradients))


@check
def broadcast_of_all_kinds() -> None:
    tree = {
        "bool": jnp.array([bps.rank() == 1]),
        "uint32": jnp.array([bps.rank()], "uint32"),
        "complex": jnp.array([bps.rank() * 1j]),
        "number": float(bps.rank()),
        "flag": bps.rank() == 1,
        "strange": jnp.array([np.nan if bps.rank() else 1.0, -0.0]),
    }
    got = bps.broadcast_parameters(tree, root_rank=1)
    assert bool(got["bool"][0]) and int(got["uint32"][0]) == 1 and complex(got["complex"][0]) == 1j
    assert got["number"] == 1.0 and got["flag"] is True
    assert np.isnan(got["strange"][0]) and np.signbit(got["strange"][1])
    with raises(UnsupportedTensorError, "random key"):
        bps.broadcast_parameters({"key": jax.random.key(0)}, 0)
    with raises(ConfigError, "jit"):
        jax.jit(lambda value: bps.broadcast(value, 0, "x"))(jnp.ones(2))


@check
def what_is_refused_when_a_function_is_traced() -> None:
    for dtype in ("bool", "complex64", "int16"):
        with raises(UnsupportedTensorError, "bad", dtype, "bfloat16"):
            jax.jit(lambda value: bps.push_pull(value, name="bad"))(jnp.zeros(2, dtype))
    with raises(ValueError, "vmap"):
        jax.vmap(lambda value: bps.push_pull(value, name="mapped"))(jnp.ones((2, 2)))
    with raises(ValueError, "compressor"):
        bps.distributed(optax.sgd(0.1), compression_params={"compressor": "nonsense"})


@check
def momentum_of_the_core_is_that_of_optax() -> None:
    if not HAS_CODECS:
        return
    x, y = data()
    wanted = trained(optax.sgd(0.1, momentum=0.9, nesterov=True), parameters(0), x, y)
    params = {"momentum": "nesterov"}
    optimizer = bps.distributed(optax.sgd(0.1), params, momentum=0.9)
    close(trained(optimizer, parameters(0), x[bps.rank() :: 2], y[bps.rank() :: 2]), wanted, 2e-5)
    with raises(ConfigError, "momentum=0.9"):
        bps.distributed(optax.sgd(0.1), params)
    with raises(ConfigError, "learning_rate"):
        bps.distributed(optax.sgd(0.1), {"compressor": "topk", "k": 0.1, "ef": "corrected"})


@check
def compressed_training_learns() -> None:
    if not HAS_CODECS:
        return
    x, y = data()
    mine = x[bps.rank() :: 2], y[bps.rank() :: 2]
    corrected = {"compressor": "topk", "k": 0.3, "ef": "corrected"}
    for params in (*COMPRESSION, corrected):
        rate = optax.cosine_decay_schedule(0.1, 20)
        optimizer = bps.distributed(optax.sgd(rate), params, learning_rate=rate, momentum=0.9)
        leaves = trained(optimizer, parameters(0), *mine)
        weights = jax.tree.unflatten(jax.tree.structure(parameters(0)), leaves)
        assert loss_of(weights, *mine) < 0.8 * loss_of(parameters(0), *mine), params
        close(leaves, bps.broadcast(leaves, 0), 0)  # alike on both ranks, bit for bit


@check
def halves_travel() -> None:
    optimizer = bps.distributed(optax.sgd(1.0), compression=bps.Compression.fp16)
    gradients = {"w": jnp.array([1 / 3, 1e-5], "float32")}
    updates, _ = jax.jit(optimizer.update)(gradients, optimizer.init(gradients))
    np.testing.assert_array_equal(updates["w"], -gradients["w"].astype("float16").astype("float32"))


@check
def steps_are_known_without_help() -> None:
    seen: list[int] = []
    current.required("a test").steps = Steps(seen.append)
    optimizer = bps.distributed(optax.sgd(0.1))
    weights = {"w": jnp.ones(4)}
    state = optimizer.init(weights)
    for _ in range(3):
        updates, state = optimizer.update(weights, state, weights)
        jax.block_until_ready(updates)
    assert seen == [1, 2, 3]
