"""The interfaces under test, all with one face: tensors are made from and turned into NumPy arrays.

A check speaks to an ``Interface`` only, so that every plugin has to pass the same ones.
"""

from __future__ import annotations

import importlib.util
import types
from typing import Any, ClassVar

import numpy as np

from byteps.tensor import dtypes

Array = np.ndarray[Any, Any]


class Interface:
    """One plugin. ``bps`` is its module, with the verbs that all plugins share."""

    name: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]]
    in_place: ClassVar[bool]  # has push_pull_inplace
    is_mutable: ClassVar[bool] = True  # broadcast changes its argument
    has_views: ClassVar[bool] = True  # part of a tensor is the same memory
    refused: ClassVar[tuple[str, ...]] = (
        "bool",
        "complex64",
        "int16",
    )  # dtypes that it has and that do not travel
    bps: types.ModuleType

    def make(self, values: Array, dtype: str) -> Any:
        """A fresh tensor of these whole numbers."""
        raise NotImplementedError

    def from_bits(self, bits: Array, dtype: str) -> Any:
        """A fresh tensor with exactly these bytes, given as unsigned integers of the dtype's size."""
        raise NotImplementedError

    def bits(self, tensor: Any) -> Array:
        """The bytes of a tensor, as ``from_bits`` takes them."""
        raise NotImplementedError

    def values(self, tensor: Any) -> Array:
        """The numbers of a tensor, widened to float64 or int64."""
        raise NotImplementedError

    def every_other_column(self, tensor: Any) -> Any:
        """A view of a matrix whose elements do not lie side by side."""
        return tensor[:, ::2]

    def transposed(self, tensor: Any) -> Any:
        """A matrix with rows for columns."""
        return tensor.T

    def dtype_of(self, tensor: Any) -> str:
        """The name of a tensor's dtype."""
        return str(tensor.dtype).removeprefix("torch.")


class NumPy(Interface):
    name = "numpy"
    in_place = False

    def __init__(self) -> None:
        import byteps

        self.bps = byteps

    # bfloat16 is in the unit tests of _arrays: NumPy has none, and a package that adds it is no dependency
    # of ours.
    dtypes = tuple(name for name in dtypes.NAMES if name != "bfloat16")

    def make(self, values: Array, dtype: str) -> Array:
        return values.astype(dtype)

    def from_bits(self, bits: Array, dtype: str) -> Array:
        return bits.view(dtype).copy()

    def bits(self, tensor: Array) -> Array:
        return np.ascontiguousarray(tensor).view(f"uint{8 * tensor.itemsize}").reshape(tensor.shape)

    def values(self, tensor: Array) -> Array:
        return tensor.astype(np.float64 if tensor.dtype.kind == "f" else np.int64)


class Torch(Interface):
    name = "torch"
    dtypes = dtypes.NAMES
    in_place = True

    def __init__(self) -> None:
        import torch

        import byteps.torch

        torch.set_num_threads(1)
        self.torch = torch
        self.bps = byteps.torch

    def make(self, values: Array, dtype: str) -> Any:
        return self.torch.from_numpy(np.array(values)).to(getattr(self.torch, dtype))

    def from_bits(self, bits: Array, dtype: str) -> Any:
        signed = np.array(bits).view(f"int{8 * bits.itemsize}")
        return self.torch.from_numpy(signed).view(getattr(self.torch, dtype)).clone()

    def bits(self, tensor: Any) -> Array:
        signed = getattr(self.torch, f"int{8 * tensor.element_size()}")
        found = tensor.detach().contiguous().view(signed).numpy()
        return found.view(f"uint{8 * tensor.element_size()}")

    def values(self, tensor: Any) -> Array:
        wide = self.torch.float64 if tensor.is_floating_point() else self.torch.int64
        found: Array = tensor.detach().to(wide).numpy()
        return found


def _installed() -> list[type[Interface]]:
    """NumPy, and the frameworks of this environment."""
    from framework_interfaces import Jax, MXNet, TensorFlow

    every = (Torch, TensorFlow, MXNet, Jax)
    return [NumPy, *(each for each in every if importlib.util.find_spec(each.name) is not None)]


INTERFACES: dict[str, type[Interface]] = {each.name: each for each in _installed()}
