"""The gradients of a step, averaged by the plugin of the framework that Keras runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from byteps.compress import parse
from byteps.errors import ConfigError
from byteps.plugin.agreement import Agreement
from byteps.plugin.group import numbered
from byteps.worker import current

__all__ = ["average"]

_PREFIX = "Gradient."


def average(
    gradients: list[Any],
    variables: list[Any],
    fp16: bool,
    compression_params: Mapping[str, object] | None,
    rates: tuple[Any, float | None],
) -> list[Any]:
    """The average of each gradient over all ranks; None stays None.

    ``rates`` are the optimizer's learning rate and the momentum that is left to the core.
    """
    backend = keras.backend.backend()
    if backend not in _AVERAGES:
        raise ConfigError(
            f"DistributedOptimizer: Keras runs on {backend!r}, expected {', '.join(_AVERAGES)}; set "
            "KERAS_BACKEND"
        )
    return _AVERAGES[backend](gradients, variables, fp16, compression_params, rates)


def _tensorflow(
    gradients: list[Any], variables: list[Any], fp16: bool, params: Any, rates: tuple[Any, float | None]
) -> list[Any]:
    from byteps.plugin.tensorflow.compression import Compression
    from byteps.plugin.tensorflow.gradients import average_gradients

    cast = Compression.fp16 if fp16 else Compression.none
    return average_gradients(gradients, variables, cast, params, _PREFIX, rates)


def _torch(
    gradients: list[Any], variables: list[Any], fp16: bool, params: Any, rates: tuple[Any, float | None]
) -> list[Any]:
    from byteps.torch.compression import Compression
    from byteps.torch.ops import push_pull_async

    session = current.required("push_pull")
    cast = Compression.fp16 if fp16 else Compression.none
    sent = {
        f"{_PREFIX}{name}": cast.compress(gradient.detach().contiguous())
        for name, gradient in zip(numbered([each.path for each in variables]), gradients, strict=True)
        if gradient is not None
    }
    agreement = Agreement(
        "push_pull",
        "gradients",
        [f"{name} {value.dtype} {list(value.shape)}" for name, (value, _) in sent.items()],
    )
    question = agreement.ask(session) if session.size > 1 else None
    if parse(params).text():
        rated: Any = session
        rated.set_rates(float(rates[0]), rates[1], list(sent))
    handles = [
        push_pull_async(value, True, name, -index, params)
        for index, (name, (value, _)) in reversed(list(enumerate(sent.items())))
    ][::-1]
    if question is not None:
        agreement.check(session, question)
    found = iter(
        [
            cast.decompress(handle.wait(), dtype)
            for handle, (_, dtype) in zip(handles, sent.values(), strict=True)
        ]
    )
    return [None if gradient is None else next(found) for gradient in gradients]


def _jax(
    gradients: list[Any], variables: list[Any], fp16: bool, params: Any, rates: tuple[Any, float | None]
) -> list[Any]:
    from byteps.jax.gradients import average_gradients

    names = numbered([each.path for each in variables])
    present = {
        f"{_PREFIX}{name}": gradient
        for name, gradient in zip(names, gradients, strict=True)
        if gradient is not None
    }
    found = iter(average_gradients(present, fp16, params, rates).values())
    return [None if gradient is None else next(found) for gradient in gradients]


_AVERAGES = {"tensorflow": _tensorflow, "torch": _torch, "jax": _jax}
