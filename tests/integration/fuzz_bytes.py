"""Bytes that are nearly right: what the fuzzers of the control plane send."""

from __future__ import annotations

import random
from typing import Any, get_args

import msgspec

from byteps import _core
from byteps.control.messages import Message

INTEGERS = [-1, 0, 1, 2, 3, 7, 255, 256, 4_096, 65_535, 65_536, 1 << 30, 1 << 31, 1 << 48, 1 << 63]
TEXTS = ["", "x", "worker", "server", "scheduler", "BYTEPS_PARTITION_BYTES", "64"]
TEXTS += ["\x1b[2J", "é" * 300, "\u202e", "a" * 5_000]


def changed(rng: random.Random, data: bytes) -> bytes:
    """Some bytes of ``data`` are others, or missing, or there twice; or nothing is changed."""
    out = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        if not out:
            break
        at = rng.randrange(len(out))
        match rng.randrange(5):
            case 0:
                out[at] = rng.randrange(256)
            case 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case _:
                out[at:at] = out[at : at + rng.randrange(1, 9)]
    return bytes(out)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Anything that MessagePack can say."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.choice(INTEGERS)
    if kind == 3:
        return rng.choice((0.0, -1.5, float("inf"), float("nan")))
    if kind == 4:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.randbytes(rng.randrange(40))
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {rng.choice(TEXTS): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return msgspec.Raw(b"\x91" * rng.choice((10, 900, 3_000)) + b"\xc0")  # nested


def unknown(rng: random.Random) -> dict[str, Any]:
    """Fields that nobody knows: a decoder passes over them, however they are nested."""
    if rng.random() < 0.8:
        return {}
    return {"x": value(rng), "y": msgspec.Raw(b"\x91" * rng.choice((500, 3_500)) + b"\xc0")}


def message(rng: random.Random, good: Message | None = None) -> bytes:
    """A control message of any kind; some fields of a good one, or of any, have other values."""
    kind = type(good) if good is not None else rng.choice(get_args(Message))
    fields = msgspec.to_builtins(good) if good is not None else {"type": kind.__struct_config__.tag}
    for name in kind.__struct_fields__:
        if good is None or rng.random() < 0.15:
            fields[name] = value(rng)
    return msgspec.msgpack.encode(fields | unknown(rng))


def frame(kind: int, job: int, payload: bytes) -> bytes:
    return _core.encode_frame(kind, job, 0, 0, payload)
