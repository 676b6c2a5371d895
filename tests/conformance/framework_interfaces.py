"""The interfaces that need an environment of their own: TensorFlow, MXNet and JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
from interfaces import Array, Interface

from byteps.tensor import dtypes


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"uint{8 * array.itemsize}").reshape(array.shape)


def _values(array: Array) -> Array:
    return array.astype(np.float64 if "float" in array.dtype.name else np.int64)


class TensorFlow(Interface):
    name = "tensorflow"
    dtypes = dtypes.NAMES
    in_place = False
    is_mutable = False
    has_views = False

    def __init__(self) -> None:
        import tensorflow as tf

        import byteps.tensorflow

        self.tf = tf
        self.bps = byteps.tensorflow

    def make(self, values: Array, dtype: str) -> Any:
        return self.tf.cast(self.tf.constant(values), dtype)

    def from_bits(self, bits: Array, dtype: str) -> Any:
        return self.tf.bitcast(self.tf.constant(bits), dtype)

    def bits(self, tensor: Any) -> Array:
        return _bits(np.asarray(tensor))

    def values(self, tensor: Any) -> Array:
        return _values(np.asarray(tensor))

    def transposed(self, tensor: Any) -> Any:
        return self.tf.transpose(tensor)

    def dtype_of(self, tensor: Any) -> str:
        return str(tensor.dtype.name)


class MXNet(Interface):
    name = "mxnet"
    dtypes = tuple(name for name in dtypes.NAMES if name != "bfloat16")  # it has no operators for it on CPU
    in_place = False
    has_views = False
    refused = ("bool",)

    def __init__(self) -> None:
        import mxnet

        import byteps.mxnet

        mxnet.npx.set_np()  # arrays of zero elements and of no dimension
        self.mx = mxnet
        self.bps = byteps.mxnet

    def make(self, values: Array, dtype: str) -> Any:
        return self.mx.np.array(values.astype(dtype), dtype=dtype)

    def from_bits(self, bits: Array, dtype: str) -> Any:
        return self.mx.np.array(bits.view(dtype), dtype=dtype)

    def bits(self, tensor: Any) -> Array:
        return _bits(tensor.asnumpy())

    def values(self, tensor: Any) -> Array:
        return _values(tensor.asnumpy())

    def dtype_of(self, tensor: Any) -> str:
        return np.dtype(tensor.dtype).name


class Jax(Interface):
    name = "jax"
    dtypes = dtypes.NAMES
    in_place = False
    is_mutable = False
    has_views = False

    def __init__(self) -> None:
        import jax

        import byteps.jax

        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.bps = byteps.jax

    def make(self, values: Array, dtype: str) -> Any:
        return self.jax.numpy.asarray(values).astype(dtype)

    def from_bits(self, bits: Array, dtype: str) -> Any:
        return self.jax.numpy.asarray(np.array(bits).view(self.jax.numpy.dtype(dtype)))

    def bits(self, tensor: Any) -> Array:
        return _bits(np.asarray(tensor))

    def values(self, tensor: Any) -> Array:
        return _values(np.asarray(tensor))
