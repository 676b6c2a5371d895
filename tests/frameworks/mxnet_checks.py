"""The MXNet plugin: trainer, optimizer, declared tensors, parameters, and MXNet's engine."""

from __future__ import annotations

import warnings
from typing import Any

import mxnet as mx
import numpy as np
from frame_suite import COMPRESSION, HAS_CODECS, Array, check, check_before_init, close, data, raises
from mxnet import autograd, gluon

import byteps.mxnet as bps
from byteps.errors import ConfigError, DeclarationError, NotInitializedError
from byteps.testing import exact
from byteps.worker import current
from byteps.worker.steps import Steps

LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
SGD = {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}


@check_before_init
def before_init() -> None:
    with raises(NotInitializedError, "push_pull"):
        bps.byteps_push_pull(mx.nd.ones(3), name="x")
    with raises(NotInitializedError, "byteps_declare_tensor"):
        bps.byteps_declare_tensor("x")
    with raises(NotInitializedError, "DistributedTrainer"):
        bps.DistributedTrainer({}, "sgd")
    with raises(NotInitializedError, "broadcast_parameters"):
        bps.broadcast_parameters({})


def half(array: Array) -> Any:
    """This rank's half of the samples."""
    share = len(array) // bps.size()
    return mx.nd.array(array[bps.rank() * share : (bps.rank() + 1) * share])


def network(seed: int, prefix: str = "net_", known: bool = True) -> Any:
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(gluon.nn.Dense(16, activation="relu", in_units=8 if known else 0))
        net.add(gluon.nn.Dense(3, in_units=16 if known else 0))
    net.initialize(mx.init.Xavier())
    return net


def trained(net: Any, trainer: Any, x: Any, y: Any, steps: int = 10) -> list[Array]:
    for _ in range(steps):
        with autograd.record():
            loss = LOSS(net(x), y)
        loss.backward()
        trainer.step(len(x))
    return [each.data().asnumpy() for each in net.collect_params().values()]


def alone(known: bool = True, optimizer: str = "sgd", wd: float = 0.01) -> list[Array]:
    net = network(0, known=known)
    x, y = data()
    trainer = gluon.Trainer(net.collect_params(), optimizer, {**SGD, "wd": wd}, kvstore=None)
    return trained(net, trainer, mx.nd.array(x), mx.nd.array(y))


@check
def trainer_against_one_process() -> None:
    x, y = data()
    for known in (True, False):  # shapes given, or found by the first batch
        for optimizer in ("sgd", "nag"):
            net = network(bps.rank(), known=known)
            trainer = bps.DistributedTrainer(net.collect_params(), optimizer, SGD)
            close(trained(net, trainer, half(x), half(y)), alone(known, optimizer))


@check
def starts_from_the_root_given() -> None:
    net = network(bps.rank())
    bps.DistributedTrainer(net.collect_params(), "sgd", {}, root_rank=1)
    wanted = network(1)
    close(
        [each.data().asnumpy() for each in net.collect_params().values()],
        [each.data().asnumpy() for each in wanted.collect_params().values()],
        0,
    )


@check
def gradients_are_there_to_be_clipped() -> None:
    net = network(0)
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    x = mx.nd.ones((1, 8)) * 4 ** bps.rank()
    with autograd.record():
        loss = net(x).sum()
    loss.backward()
    own = net[0].weight.grad().copy()
    trainer.allreduce_grads()
    both = bps.push_pull(own, name="own")
    close([net[0].weight.grad().asnumpy()], [both.asnumpy()])
    trainer.update(1)


def clipped(net: Any, trainer: Any, x: Any, y: Any, distributed: bool) -> list[Array]:
    """As scripts do it: what ``step()`` does, in two parts, and clipping between them."""
    for _ in range(5):
        with autograd.record():
            loss = LOSS(net(x), y)
        loss.backward()
        if distributed:
            trainer.allreduce_grads()
        gradients = [each.grad() for each in net.collect_params().values()]
        if (
            distributed
        ):  # sums over the samples of a rank, averaged over ranks: half of the sum of one process
            assert gluon.utils.clip_global_norm(gradients, 0.05 * len(x)) > 0.05 * len(x)
            trainer.update(len(x))
        else:
            gluon.utils.clip_global_norm(gradients, 0.05 * len(x))
            trainer.step(len(x))
    return [each.data().asnumpy() for each in net.collect_params().values()]


@check
def clipping_against_one_process() -> None:
    x, y = data()
    single = network(0)
    plain = gluon.Trainer(single.collect_params(), "sgd", SGD, kvstore=None)
    wanted = clipped(single, plain, mx.nd.array(x), mx.nd.array(y), False)
    net = network(0)
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", SGD)
    got = clipped(net, trainer, half(x), half(y), True)
    close(got, wanted)
    alike(got, "clipped")
    by_value = {**SGD, "clip_gradient": 0.005}  # what the optimizer itself has
    single, net = network(0), network(0)
    plain = gluon.Trainer(single.collect_params(), "sgd", by_value, kvstore=None)
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", by_value)
    got = trained(net, trainer, half(x), half(y))
    close(got, trained(single, plain, mx.nd.array(x), mx.nd.array(y)))
    alike(got, "clipped by value")


def alike(weights: list[Array], name: str) -> None:
    """On both ranks, bit for bit."""
    for index, weight in enumerate(weights):
        other = bps.broadcast(mx.nd.array(weight), 0, name=f"{name} {index}").asnumpy()
        np.testing.assert_array_equal(weight, other)


@check
def optimizer_against_one_process() -> None:
    x, y = data()
    for chosen in ("sgd", "adam"):
        net = network(0)
        inner = mx.optimizer.create(chosen, learning_rate=0.1)
        trainer = gluon.Trainer(net.collect_params(), bps.DistributedOptimizer(inner), kvstore=None)
        got = trained(net, trainer, half(x), half(y))
        single = network(0)
        plain = gluon.Trainer(single.collect_params(), chosen, {"learning_rate": 0.1}, kvstore=None)
        close(got, trained(single, plain, mx.nd.array(x), mx.nd.array(y)), 1e-4 if chosen == "adam" else 2e-6)
        trainer.set_learning_rate(0.5)
        assert inner.learning_rate == 0.5


@check
def the_module_api() -> None:
    x, y = data()

    def weights(distributed: bool) -> list[Array]:
        mx.random.seed(0)
        hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="only")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(hidden, name="softmax"))
        batch = 32 if distributed else 64
        mine = (half(x), half(y)) if distributed else (mx.nd.array(x), mx.nd.array(y))
        module.bind([("data", (batch, 8))], [("softmax_label", (batch,))])
        module.init_params(mx.init.One())
        # SoftmaxOutput does not divide by the batch.
        optimizer = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, rescale_grad=1 / batch)
        if distributed:
            optimizer = bps.DistributedOptimizer(optimizer)
            bps.broadcast_parameters(module.get_params()[0], root_rank=0)
        module.init_optimizer(kvstore=None, optimizer=optimizer)
        for _ in range(5):
            module.forward_backward(mx.io.DataBatch([mine[0]], [mine[1]]))
            module.update()
        return [value.asnumpy() for _, value in sorted(module.get_params()[0].items())]

    close(weights(True), weights(False))


@check
def what_mxnet_still_computes() -> None:
    # The engine is asked for work that takes long, and nobody waits for it but us.
    value = mx.nd.ones((600, 600))
    for _ in range(20):
        value = mx.nd.dot(value, mx.nd.eye(600))
    value = value * 4 ** bps.rank()
    reader = value + 1
    bps.byteps_push_pull(value, name="late", is_average=False)
    assert float(value.min().asscalar()) == float(value.max().asscalar()) == 5.0
    assert float(reader.asnumpy()[0, 0]) == 4 ** bps.rank() + 1  # read before it was replaced


@check
def many_handles() -> None:
    handles = []
    for i in range(50):
        value = mx.nd.array(exact.contribution(bps.rank(), (31,), salt=i))
        handles.append(bps.push_pull_async(value, False, f"handle {i}"))
    for i in reversed(range(50)):
        np.testing.assert_array_equal(bps.synchronize(handles[i]).asnumpy(), exact.total(2, (31,), salt=i))


@check
def sparse_gradients_become_dense() -> None:
    dense = mx.nd.zeros((4, 2))
    dense[bps.rank()] = 1
    value = dense.tostype("row_sparse")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        bps.byteps_push_pull(value, name="rows", is_average=False)
        bps.byteps_push_pull(value, name="rows again", is_average=False)
    np.testing.assert_array_equal(value.asnumpy(), [[2, 2], [2, 2], [0, 0], [0, 0]])
    assert ["sparse" in str(each.message) for each in seen].count(True) == 1


@check
def declared_by_the_original_words() -> None:
    bps.byteps_declare_tensor("plain")
    bps.byteps_declare_tensor("mu only", byteps_momentum_mu="0.9")
    with raises(ConfigError, "byteps_compresor_type", "byteps_compressor_type"):
        bps.byteps_declare_tensor("x", byteps_compresor_type="onebit")
    with raises(ValueError, "compressor", "twobit"):
        bps.byteps_declare_tensor("x", byteps_compressor_type="twobit")
    from byteps.mxnet.declared import params_of

    bps.byteps_declare_tensor(
        "text",
        byteps_compressor_type="dithering",
        byteps_compressor_k="4",
        byteps_dithering_partition="1",
        byteps_dithering_normalize="1",
        byteps_seed="7",
    )
    wanted = {"compressor": "dithering", "k": 4, "partition": "natural", "normalize": "l2", "seed": 7}
    assert params_of("text", None) == wanted
    bps.byteps_declare_tensor(
        "scaled", byteps_compressor_type="onebit", byteps_compressor_onebit_scaling="true"
    )
    bps.byteps_declare_tensor("block", byteps_compressor_type="int8", byteps_block_rounding="nearest")
    assert params_of("block", None) == {"compressor": "int8", "rounding": "nearest"}
    assert params_of("scaled", None) == {"compressor": "onebit", "scaling": True}


@check
def momentum_of_the_core_is_that_of_nag() -> None:
    if not HAS_CODECS:
        return
    x, y = data()
    net = network(bps.rank())
    params = {"momentum": "nesterov"}
    options = {**SGD, "wd": 0.0}
    trainer = bps.DistributedTrainer(net.collect_params(), "nag", options, compression_params=params)
    close(trained(net, trainer, half(x), half(y)), alone(optimizer="nag", wd=0.0), 1e-5)
    with raises(ConfigError, "step(batch_size)"):
        trainer.update(1)
    with raises(ConfigError, "momentum", "Adam"):
        bps.DistributedTrainer(net.collect_params(), "adam", {}, compression_params=params)
    clipping = {**options, "clip_gradient": 0.1}
    with raises(ConfigError, "clip_gradient", "before its momentum"):
        bps.DistributedTrainer(net.collect_params(), "nag", clipping, compression_params=params)


@check
def decay_comes_before_momentum() -> None:
    if not HAS_CODECS:
        return
    weight = gluon.Parameter("decayed_weight", shape=(2,), init=mx.init.One())
    weight.initialize()
    trainer = bps.DistributedTrainer([weight], "sgd", SGD, compression_params={"momentum": "nesterov"})
    wanted, momentum = 1.0, 0.0
    for step in range(5):
        with autograd.record():
            loss = (weight.data() * 0.3 * (step + 1) * 2).sum()
        loss.backward()
        trainer.step(2)  # the batch divides
        gradient = 0.3 * (step + 1) + SGD["wd"] * wanted
        momentum = SGD["momentum"] * momentum + gradient
        wanted -= SGD["learning_rate"] * (gradient + SGD["momentum"] * momentum)
    close([weight.data().asnumpy()], [np.full(2, wanted, "float32")], 1e-6)


@check
def compressed_training_learns() -> None:
    if not HAS_CODECS:
        return
    x, y = data()
    for number, params in enumerate(COMPRESSION):
        net = network(0, prefix=f"compressed{number}_")
        trainer = bps.DistributedTrainer(net.collect_params(), "nag", SGD, compression_params=params)
        before = float(LOSS(net(half(x)), half(y)).mean().asscalar())
        weights = trained(net, trainer, half(x), half(y), 20)
        assert float(LOSS(net(half(x)), half(y)).mean().asscalar()) < 0.8 * before, params
        alike(weights, f"compressed {number}")


@check
def different_networks_are_named() -> None:
    net = network(0, prefix=f"net{bps.rank()}_")
    with raises(DeclarationError, "parameters", "Parameter.net0_", "Parameter.net1_"):
        bps.DistributedTrainer(net.collect_params(), "sgd")


@check
def wrong_use_is_said() -> None:
    net = network(0)
    with raises(ConfigError, "DistributedOptimizer"):
        bps.DistributedTrainer(net.collect_params(), bps.DistributedOptimizer(mx.optimizer.SGD()))
    with raises(ConfigError, "once"):
        bps.DistributedOptimizer(bps.DistributedOptimizer(mx.optimizer.SGD()))
    several = network(0, prefix="several_")
    several.collect_params().reset_ctx([mx.cpu(0), mx.cpu(1)])
    trainer = bps.DistributedTrainer(several.collect_params(), "sgd")
    with raises(ConfigError, "2 devices"):
        trainer.allreduce_grads()


@check
def steps_are_known_without_help() -> None:
    seen: list[int] = []
    current.required("a test").steps = Steps(seen.append)
    net = gluon.nn.Dense(3, in_units=4, prefix="steps_")
    net.initialize()
    trainer = bps.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(3):
        with autograd.record():
            loss = net(mx.nd.ones((2, 4))).sum()
        loss.backward()
        trainer.step(2)
    assert seen == [1, 2, 3]
