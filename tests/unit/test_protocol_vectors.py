"""The example frames of protocol/vectors/ agree with the table in PROTOCOL.md and with the native codec."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from byteps import _core

VECTORS = sorted((Path(__file__).parents[2] / "protocol" / "vectors").glob("*.txt"))
LAYOUT = struct.Struct("<IBBHQIHBBQIIiIQII")
NAMES = [
    "magic",
    "version",
    "type",
    "flags",
    "job",
    "epoch",
    "sender",
    "dtype",
    "codec",
    "key",
    "round",
    "length",
    "priority",
    "payload_crc",
    "received",
    "detail",
    "header_crc",
]


def crc32c_by_the_book(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def fields_of(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split(" = ", 1) if " = " in line else (line.removesuffix(" ="), "") for line in lines)


def test_there_are_vectors() -> None:
    assert len(VECTORS) >= 10


@pytest.mark.parametrize("path", VECTORS, ids=lambda p: p.stem)
def test_vector(path: Path) -> None:
    fields = fields_of(path)
    payload = bytes.fromhex(fields["payload"])
    frame = bytes.fromhex(fields["frame"])
    assert LAYOUT.size == _core.HEADER_BYTES == 64
    assert LAYOUT.pack(*(int(fields[name]) for name in NAMES)) + payload == frame
    assert int(fields["header_crc"]) == crc32c_by_the_book(frame[:60])
    if int(fields["flags"]) & 4:
        assert int(fields["payload_crc"]) == crc32c_by_the_book(payload)
    decoded = _core.decode_header(frame[:64], int(fields["job"]))
    assert decoded == tuple(int(fields[name]) for name in ("type", "epoch", "sender", "length"))


def test_control_frames_are_encoded_as_in_the_vector() -> None:
    fields = fields_of(next(p for p in VECTORS if p.stem == "control"))
    numbers = (int(fields[name]) for name in ("type", "job", "epoch", "sender"))
    assert _core.encode_frame(*numbers, bytes.fromhex(fields["payload"])).hex() == fields["frame"]


def test_a_flipped_bit_anywhere_in_a_header_is_noticed() -> None:
    frame = bytes.fromhex(fields_of(next(p for p in VECTORS if p.stem == "push"))["frame"])
    for bit in range(64 * 8):
        broken = bytearray(frame[:64])
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(_core.WireError):
            _core.decode_header(bytes(broken), 0)
