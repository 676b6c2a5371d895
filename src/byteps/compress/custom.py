"""Codecs of the user's own, in NumPy: registered here, run by the core on workers and servers.

    class Quarter:
        def __init__(self, n, spec, seed, key):
            self.n = n
        def encode(self, x, round):          # float32[n] -> bytes
            return x[: self.n // 4].tobytes()
        def decode(self, payload, round):    # bytes -> float32[n]
            out = np.zeros(self.n, np.float32)
            out[: self.n // 4] = np.frombuffer(payload, np.float32)
            return out

    byteps.compress.register("quarter", Quarter)
    byteps.push_pull(g, name="g", compression_params={"compressor": "quarter", "ef": "vanilla"})

Error feedback, momentum, partitions, averages and the way to the servers and back are as for every other
codec. Server processes must know it too: BYTEPS_PLUGINS names the modules that register codecs.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from byteps.compress import params
from byteps.compress.floats import Floats
from byteps.errors import ConfigError

__all__ = ["CustomCodec", "adapter", "load_plugins", "register"]


class CustomCodec(Protocol):
    """One partition's codec. Calls come one at a time, from threads of the core.

    It must not keep state that the other end would need: whatever is random is a function of ``seed``,
    ``key`` and ``round``, which are the same for every call of one round. ``max_bytes`` may be an
    attribute: the longest payload, 4 n + 64 without it.
    """

    def encode(self, x: Floats, round: int) -> bytes: ...

    def decode(self, payload: bytes, round: int) -> Floats:
        """``n`` float32; raise ValueError for bytes that ``encode`` does not make."""


Factory = Callable[[int, params.CodecSpec, int, int], CustomCodec]

_factories: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Make ``{"compressor": name}`` mean the codec that ``factory(n, spec, seed, key)`` returns.

    It is called once per partition, on every worker and server. ``spec.k``, ``spec.scaling``,
    ``spec.normalize`` and ``spec.partition`` are what the user gave. Raises ConfigError for a name that is
    taken by one of ours, or that is not a plain word.
    """
    if name in (*params.COMPRESSORS, "fp16", "custom") or not name.replace("-", "_").isidentifier():
        raise ConfigError(
            f"register: {name!r} is not a name for a codec; expected a word that is none of "
            f"{', '.join(params.COMPRESSORS)}, fp16"
        )
    _factories[name] = factory
    params.CUSTOM.add(name)


def load_plugins(modules: Iterable[str]) -> None:
    """Import the modules of BYTEPS_PLUGINS; ConfigError names the one that cannot be."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigError(
                f"BYTEPS_PLUGINS: importing {module!r} failed: {type(error).__name__}: {error}; it must be "
                "importable in every worker and server, as by PYTHONPATH"
            ) from error


class _Adapter:
    """A custom codec as the core calls it: with addresses."""

    def __init__(self, codec: CustomCodec, n: int) -> None:
        self._codec = codec
        self._n = n
        self.max_bytes = int(getattr(codec, "max_bytes", 4 * n + 64))

    def encode(self, x: int, round: int, out: int) -> int:
        array = _floats(x, self._n)
        array.flags.writeable = False
        payload = bytes(self._codec.encode(array, round))
        if not 0 < len(payload) <= self.max_bytes:
            raise ValueError(f"encode gave {len(payload)} bytes, expected 1 to {self.max_bytes} (max_bytes)")
        ctypes.memmove(out, payload, len(payload))
        return len(payload)

    def decode(self, payload: int, nbytes: int, round: int, out: int) -> None:
        decoded = np.asarray(self._codec.decode(ctypes.string_at(payload, nbytes), round), np.float32)
        if decoded.size != self._n:
            raise ValueError(f"decode gave {decoded.size} elements, expected {self._n}")
        _floats(out, self._n)[:] = decoded.reshape(-1)


def _floats(address: int, n: int) -> Floats:
    memory = memoryview((ctypes.c_char * (4 * n)).from_address(address)).cast("B")
    return np.frombuffer(memory, np.float32)


def adapter(text: str, n: int, seed: int, key: int) -> Any:
    """For the core: the codec of a canonical text."""
    name = text.partition(",")[0].removeprefix("compressor=")
    if name not in _factories:
        raise ConfigError(
            f"the codec {name!r} is not registered in this process; put the module that registers it into "
            "BYTEPS_PLUGINS of all workers and servers"
        )
    return _Adapter(_factories[name](n, params.CodecSpec.from_text(text), seed, key), n)
