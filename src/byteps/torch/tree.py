"""Objects as bytes and tensors, without pickle: dicts, lists, tuples, plain values, and tensors in them.

Bytes are msgpack. Every value is a pair of a kind and what it is made of; a tensor is its dtype, its shape
and its place among the tensors that travel beside. Nothing that is received can run code, unless the
receiver allows pickle for what has no kind of its own.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from byteps.control.said import unpack as decoded
from byteps.errors import BytePSError, ProtocolError, UnsupportedTensorError
from byteps.observe.text import clean

__all__ = ["Unpacked", "pack", "unpack"]

_SMALL_BYTES = 1 << 16  # a tensor of up to this size travels inside the bytes
_PLAIN = (type(None), bool, float, str, bytes)
_INT64 = range(-(1 << 63), 1 << 63)
_decoder = msgspec.msgpack.Decoder()
# What values that do not fit together make Python, NumPy or PyTorch raise.
_NONSENSE = (RecursionError, TypeError, ValueError, LookupError, ArithmeticError, RuntimeError)


class Unpacked(msgspec.Struct):
    """What ``unpack`` gives: an object, and the tensors in it whose values are still to come."""

    value: Any
    tensors: list[Tensor]


def pack(value: Any, what: str, *, allow_pickle: bool) -> tuple[bytes, list[Tensor]]:
    """``value`` as bytes, and the large tensors in it, which travel by themselves."""
    packer = _Packer(allow_pickle)
    tree = packer.node(value, what)
    return msgspec.msgpack.encode(tree), packer.large


class _Packer:
    def __init__(self, allow_pickle: bool) -> None:
        self._allow_pickle = allow_pickle
        self._known: dict[int, int] = {}  # id of a tensor -> its number: one that occurs twice stays one
        self._seen: list[Tensor] = []  # keeps the ids alive
        self.large: list[Tensor] = []

    def node(self, value: Any, path: str) -> list[Any]:
        kind = type(value)
        if kind in _PLAIN or (kind is int and value in _INT64):
            return ["plain", value]
        if kind is int:
            return ["int", str(value)]
        if kind in (list, tuple):
            return [kind.__name__, [self.node(each, f"{path}[{i}]") for i, each in enumerate(value)]]
        if kind in (dict, OrderedDict):
            pairs = [
                [self.node(k, f"{path}: a key"), self.node(v, f"{path}[{k!r}]")] for k, v in value.items()
            ]
            return [kind.__name__, pairs]
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return ["numpy", value.dtype.str, value.tobytes()]
        if kind is torch.dtype:
            return ["dtype", str(value).removeprefix("torch.")]
        if kind in (Tensor, torch.nn.Parameter) and value.layout is torch.strided:
            return self._tensor(value)
        if not self._allow_pickle:
            raise UnsupportedTensorError(
                f"{path} is a {kind.__module__}.{kind.__qualname__}, expected tensors and plain values in "
                "dicts, lists and tuples; send it with broadcast_object, which uses pickle"
            )
        return ["pickle", pickle.dumps(value)]

    def _tensor(self, tensor: Tensor) -> list[Any]:
        if id(tensor) in self._known:
            return ["again", self._known[id(tensor)]]
        self._known[id(tensor)] = len(self._seen)
        self._seen.append(tensor)
        detail = [
            type(tensor) is torch.nn.Parameter,
            tensor.requires_grad,
            str(tensor.dtype).removeprefix("torch."),
            list(tensor.shape),
            tensor.device.type,
        ]
        if tensor.numel() * tensor.element_size() > _SMALL_BYTES:
            self.large.append(tensor.detach())
            return ["tensor", detail, None]
        return ["tensor", detail, _bytes_of(tensor)]


def unpack(data: bytes, *, allow_pickle: bool, device_of: Callable[[str], torch.device]) -> Unpacked:
    """The object that was packed. ``device_of`` says where a tensor of a kind of device goes here.

    ProtocolError when the bytes are not what ``pack`` makes.
    """
    unpacker = _Unpacker(allow_pickle, device_of)
    try:
        value = unpacker.value(decoded(_decoder, data, "a received object"))
    except BytePSError:
        raise
    except _NONSENSE as error:
        why = f"{type(error).__name__}: {clean(str(error), 300)}"
        raise ProtocolError(f"a received object of {len(data)} bytes makes no sense: {why}") from error
    return Unpacked(value, unpacker.large)


class _Unpacker:
    def __init__(self, allow_pickle: bool, device_of: Callable[[str], torch.device]) -> None:
        self._allow_pickle = allow_pickle
        self._device_of = device_of
        self._seen: list[Tensor] = []
        self.large: list[Tensor] = []

    def value(self, node: Any) -> Any:
        match node:
            case ["plain", value]:
                return value
            case ["int", text]:
                return int(text)
            case ["list", items]:
                return [self.value(each) for each in items]
            case ["tuple", items]:
                return tuple(self.value(each) for each in items)
            case ["dict", pairs]:
                return {self.value(key): self.value(each) for key, each in pairs}
            case ["OrderedDict", pairs]:
                return OrderedDict((self.value(key), self.value(each)) for key, each in pairs)
            case ["numpy", dtype, data]:
                return np.frombuffer(data, np.dtype(dtype))[0]
            case ["dtype", name]:
                return _dtype(name)
            case ["again", number]:
                return self._seen[number]
            case ["tensor", detail, data]:
                return self._tensor(detail, data)
            case ["pickle", data] if self._allow_pickle:
                return pickle.loads(data)
        raise UnsupportedTensorError(
            f"a received object has {clean(str(node), 60)} in it, which has no meaning here"
        )

    def _tensor(self, detail: Any, data: bytes | None) -> Tensor:
        is_parameter, requires_grad, dtype, shape, device = detail
        tensor = torch.empty(shape, dtype=_dtype(dtype), device=self._device_of(device))
        if data:
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            tensor.copy_(flat.view(tensor.dtype).view(shape))
        made = torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor
        made.requires_grad_(requires_grad)
        self._seen.append(made)
        if data is None:
            self.large.append(made.detach())
        return made


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UnsupportedTensorError(
            f"a received tensor has the dtype {name!r}, which this PyTorch does not know"
        )
    return found


def _bytes_of(tensor: Tensor) -> bytes:
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return bytes(plain.view(-1).view(torch.uint8).numpy().tobytes()) if plain.numel() else b""
