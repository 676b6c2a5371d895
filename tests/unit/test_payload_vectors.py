"""The example payloads of protocol/payloads/ are what the reference and the native codecs write and read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from compress_cases import KERNELS, Floats, assert_same

from byteps.compress import CodecSpec, reference
from byteps.compress.native import NativeCodec
from byteps.compress.params import COMPRESSORS

VECTORS = sorted((Path(__file__).parents[2] / "protocol" / "payloads").glob("*.txt"))


class Vector(NamedTuple):
    spec: CodecSpec
    seed: int
    key: int
    round: int
    x: Floats
    payload: bytes
    decoded: Floats


def vector_of(path: Path) -> Vector:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    fields = dict(line.split(" = ", 1) for line in lines)
    x, decoded = (np.frombuffer(bytes.fromhex(fields[name]), "<f4") for name in ("elements", "decoded"))
    seed, key, round = (int(fields[name]) for name in ("seed", "key", "round"))
    return Vector(
        CodecSpec.from_text(fields["codec"]), seed, key, round, x, bytes.fromhex(fields["payload"]), decoded
    )


def test_every_codec_has_one() -> None:
    assert {vector_of(path).spec.codec for path in VECTORS} == {*COMPRESSORS, "fp16"}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_payload(path: Path) -> None:
    spec, seed, key, round, x, payload, decoded = vector_of(path)
    written = reference.make(spec, x.size, seed, key)
    assert written.encode(x, round) == payload
    assert_same(written.decode(payload, round), decoded)
    for kernels in KERNELS:
        native = NativeCodec(spec, x.size, seed, key, kernels)
        assert native.encode(x, round) == payload
        assert_same(native.decode(payload, round), decoded)
