"""Start every rank from the same numbers: ``broadcast_parameters``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx

from byteps.mxnet.memory import item
from byteps.mxnet.ops import run_in_place
from byteps.plugin.group import Group
from byteps.worker import current

__all__ = ["broadcast_arrays", "broadcast_parameters"]


def broadcast_parameters(params: Mapping[str, Any], root_rank: int = 0, prefix: str = "Parameter.") -> None:
    """Give every rank the root's values, exactly and in place.

        bps.broadcast_parameters(net.collect_params(), root_rank=0)

    Takes the parameters of a Gluon block, or the dictionaries of arrays of a ``Module``. All travel together.
    A parameter whose shape is not known before the first batch is broadcast when it is.
    """
    current.required("broadcast_parameters")
    arrays: dict[str, Any] = {}
    for name, value in sorted(params.items()):
        if not isinstance(value, mx.gluon.Parameter):
            arrays[name] = value
        elif value._deferred_init:
            _broadcast_when_made(value, name, root_rank, prefix)
        else:
            arrays[name] = value.data()
    broadcast_arrays(arrays, root_rank, prefix)


def _broadcast_when_made(parameter: Any, name: str, root_rank: int, prefix: str) -> None:
    """The first forward pass makes it, and must use the root's values already."""
    make = parameter._init_impl

    def make_and_broadcast(*args: Any, **named: Any) -> None:
        del parameter._init_impl  # once
        make(*args, **named)
        broadcast_arrays({name: parameter.data()}, root_rank, prefix)

    parameter._init_impl = make_and_broadcast


def broadcast_arrays(arrays: Mapping[str, Any], root_rank: int, prefix: str = "Parameter.") -> None:
    """Broadcast arrays in place, all at once."""
    items = [item(value, "broadcast", f"{prefix}{name}", as_bytes=True) for name, value in arrays.items()]
    run_in_place(Group("broadcast", items, root=root_rank, agree="parameters"), list(arrays.values()))
