"""Start every rank from the same numbers: ``broadcast_variables`` and ``broadcast_global_variables``."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from byteps.errors import ConfigError
from byteps.keras.optimizer import made
from byteps.plugin.group import Group, Item, numbered
from byteps.tensor import arrays, dtypes
from byteps.tensor.arrays import Array
from byteps.worker import current

__all__ = ["broadcast_global_variables", "broadcast_variables"]

_RANDOM_STATE = "seed_generator_state"  # ranks shall not drop the same units
_UINT8 = dtypes.NUMBERS["uint8"]


def broadcast_variables(variables: Iterable[Any], root_rank: int, prefix: str = "Variable.") -> None:
    """Give every rank the root's values of Keras variables, exactly; all travel together.

        bps.broadcast_variables(model.variables + model.optimizer.variables, root_rank=0)

    Every dtype works, because bits are moved. The state of random number generators stays as it is.
    """
    current.required("broadcast_variables")
    found = [each for each in variables if not each.path.endswith(_RANDOM_STATE)]
    values = [np.asarray(keras.ops.convert_to_numpy(each), order="C") for each in found]
    sent = [_as_numbers(value) for value in values]
    names = numbered([f"{prefix}{each.path}" for each in found])
    items = [
        Item(name, arrays.dtype_number(value, "broadcast", name), value.shape)
        for name, value in zip(names, sent, strict=True)
    ]
    got = Group("broadcast", items, root=root_rank, agree="variables").run(sent)
    for variable, value, result in zip(found, values, got, strict=True):
        # A new array: the JAX backend would keep the memory of the network's.
        variable.assign(result.view(value.dtype).reshape(value.shape).copy())


def broadcast_global_variables(root_rank: int) -> None:
    """Broadcast what every distributed optimizer of this process trains, and its own state.

    Keras 3 has no list of all variables. What no optimizer trains, such as the averages of batch
    normalization, is not among them: use ``broadcast_variables(model.variables, ...)`` or the callback.
    """
    current.required("broadcast_global_variables")
    gc.collect()  # or ranks might differ in which optimizers nobody uses any more
    optimizers = [each for each in made if each.built]
    if not optimizers:
        raise ConfigError(
            "broadcast_global_variables: there is no DistributedOptimizer that has its variables; build it "
            "first, or call broadcast_variables(model.variables, root_rank)"
        )
    unique: dict[int, Any] = {}
    for optimizer in optimizers:
        for variable in (*getattr(optimizer, "_trainable_variables", ()), *optimizer.variables):
            unique.setdefault(id(variable), variable)
    broadcast_variables(sorted(unique.values(), key=lambda each: str(each.path)), root_rank)


def _as_numbers(value: Array) -> Array:
    """The bytes of dtypes that cannot be summed (bool, uint32)."""
    if value.dtype.name in dtypes.NUMBERS:
        return value
    return value.reshape(-1).view(np.uint8)
