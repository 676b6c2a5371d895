"""Names of operations: made when a graph is made, and the same on every rank that makes the same graph."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from byteps.errors import ConfigError
from byteps.plugin.group import Item, numbered
from byteps.tensor import dtypes
from byteps.worker import current

__all__ = ["occurrence", "of_operation", "of_variables"]

_NOBODY_NAMED_IT = ("", "Variable", "tensor")
_used: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()  # in each graph


def of_operation(verb: str, name: str | None, items: Sequence[Item]) -> list[str]:
    """A name for each tensor of an operation; one that is given may be there once in a graph."""
    if not items:
        return []
    if tf.executing_eagerly():
        first = items[0]
        name = name or current.required(verb).tensor(verb, None, first.dtype, first.shape or ()).name
    elif name is None:
        kinds = ",".join(f"{dtypes.NAMES[each.dtype]}{each.shape}" for each in items)
        place = getattr(tf.compat.v1.get_default_graph(), "name", "graph")
        name = f"{verb} in {place}{occurrence(verb)} {kinds}"
    elif occurrence(f"name {name}"):
        raise ConfigError(
            f"{verb} of {name}: this graph has an operation of that name already; give each its own name, or "
            "pass a list of tensors"
        )
    return [name] if len(items) == 1 else [f"{name}.{number}" for number in range(len(items))]


def of_variables(variables: Sequence[Any]) -> list[str]:
    """A name for each variable (of TensorFlow or of Keras) or tensor."""
    found = []
    for index, variable in enumerate(variables):
        name = str(getattr(variable, "path", "") or _name(variable)).removesuffix(":0")
        if name in _NOBODY_NAMED_IT:  # two models would have the same names
            name = f"{name or 'tensor'}.{index}.{tf.as_dtype(variable.dtype).name}{variable.shape}"
        found.append(name)
    return numbered(found)


def _name(variable: Any) -> str:
    try:
        return str(variable.name or "")
    except AttributeError:  # an eager tensor has none
        return ""


def occurrence(label: str) -> str:
    """'' for the first use of ``label`` in a graph, then '#2', '#3', as in an unrolled loop; eager: ''."""
    if tf.executing_eagerly():
        return ""
    uses = _used.setdefault(tf.compat.v1.get_default_graph(), {})
    number = uses[label] = uses.get(label, 0) + 1
    return "" if number == 1 else f"#{number}"
