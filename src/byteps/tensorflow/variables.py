"""Start every rank from the same numbers: ``broadcast_variables`` and ``broadcast_global_variables``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from byteps.errors import ConfigError
from byteps.plugin.tensorflow import graph, names, ops
from byteps.worker import current

__all__ = ["broadcast_global_variables", "broadcast_variables"]


@graph.plain_python
def broadcast_variables(variables: Iterable[Any], root_rank: int, prefix: str = "Variable.") -> Any:
    """Give every rank the root's values, exactly; all variables travel together.

        bps.broadcast_variables(model.variables + optimizer.variables, root_rank=0)

    Takes variables of TensorFlow and of Keras, of every dtype but strings. Inside ``tf.function`` and in a
    graph of TensorFlow 1 it returns an operation that does it.
    """
    current.required("broadcast_variables")
    found = list(variables)
    own = [f"{prefix}{name}" for name in names.of_variables(found)]
    values = ops.broadcast_all([tf.convert_to_tensor(each) for each in found], own, root_rank)
    assigned = [each.assign(value) for each, value in zip(found, values, strict=True)]
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that broadcasts all variables of a graph of TensorFlow 1: run it in a session.

    TensorFlow 2 has no list of all variables: use ``broadcast_variables``.
    """
    current.required("broadcast_global_variables")
    if tf.executing_eagerly():
        raise ConfigError(
            "broadcast_global_variables: TensorFlow 2 keeps no list of all variables; call "
            "broadcast_variables(model.variables, root_rank) and the same for optimizer.variables"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)
