"""The state of a tensor's codec, as arrays: taken out of the core, put back, and kept between memberships.

    {"steps": rounds so far, "lr": of the last one, "momentum": array or None, "errors": {partition: array}}

On a machine with several ranks a partition's error is with the rank that pushes it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from byteps.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from byteps.worker.tensors import Tensor

__all__ = ["Kept", "State", "restore", "take"]

State = dict[str, Any]


def take(tensor: Tensor) -> State | None:
    """A copy of the state, or None if there is none. Waits for operations in flight."""
    native = tensor.native
    if not tensor.is_rated or native is None:
        return None
    tensor.finish()
    address, nbytes = native.momentum
    return {
        "steps": native.steps,
        "lr": native.previous_lr,
        "momentum": _copy(tensor, address, nbytes) if nbytes else None,
        "errors": {part: _copy(tensor, *memory) for part, memory in native.errors.items()},
    }


def restore(tensor: Tensor, state: State) -> None:
    """Continue from ``state``; ConfigError if it belongs to a tensor of another size.

    Errors of partitions that another rank pushes now are left out: they start from zero there.
    """
    native = tensor.native
    if not tensor.is_rated or native is None:
        return
    tensor.finish()
    address, nbytes = native.momentum
    if nbytes and state["momentum"] is not None:
        _write(tensor, "momentum", address, nbytes, state["momentum"])
    for part, (address, nbytes) in native.errors.items():
        found = state["errors"].get(part)
        if found is not None:
            _write(tensor, f"error of partition {part}", address, nbytes, found)
    native.steps = int(state["steps"])
    native.previous_lr = float(state["lr"])


def _copy(tensor: Tensor, address: int, nbytes: int) -> Any:
    import numpy as np

    out = np.empty(nbytes // 4, np.float32)
    if tensor.is_double_momentum(address):
        out = np.empty(nbytes // 8, np.float64)
    ctypes.memmove(out.ctypes.data, address, nbytes)
    return out


def _write(tensor: Tensor, what: str, address: int, nbytes: int, array: Any) -> None:
    import numpy as np

    array = np.ascontiguousarray(array)
    if array.nbytes != nbytes:
        raise ConfigError(
            f"the {what} of {tensor.name} has {array.nbytes} bytes, expected {nbytes}; the state was saved "
            "with another model or another BYTEPS_PARTITION_BYTES"
        )
    ctypes.memmove(address, array.ctypes.data, nbytes)


class Kept:
    """States of a membership that was suspended, until the next one declares the same tensors."""

    def __init__(self) -> None:
        self._states: dict[tuple[Any, ...], State] = {}

    def keep(self, tensors: Iterable[Tensor]) -> None:
        self._states = {}
        for tensor in tensors:
            state = take(tensor)
            if state is not None:
                self._states[_key(tensor)] = state

    def give(self, tensor: Tensor) -> None:
        if self._states:
            state = self._states.pop(_key(tensor), None)
            if state is not None:
                restore(tensor, state)

    def clear(self) -> None:
        self._states = {}


def _key(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.name, tensor.dtype, tensor.shape, tensor.codec


kept = Kept()
