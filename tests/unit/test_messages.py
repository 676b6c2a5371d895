"""Control messages: what goes in comes out, and what a peer makes up does not get in."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from byteps.control.messages import (
    Ask,
    Barrier,
    BarrierDone,
    ComeBack,
    Conflict,
    Declare,
    Declared,
    Departed,
    Failed,
    Leave,
    Lost,
    Member,
    Message,
    Placed,
    Presence,
    Register,
    Retire,
    Shutdown,
    Status,
    TensorSpec,
    View,
    Waiting,
    decode,
    encode,
)
from byteps.errors import ProtocolError
from byteps.worker.requests import MAX_BATCH_PARTITIONS, MAX_BATCH_TENSORS, batches

MEMBER = Member("worker", 1, "b", "10.0.0.2", 0, 0, 1, 0, 1, 77)
REGISTER: dict[str, Any] = {
    "type": "register", "role": "worker", "worker_id": 0, "local_rank": 0, "local_size": 1,
    "global_rank": None, "num_workers": 2, "num_servers": 1, "host": "a", "address": "10.0.0.1",
    "port": 0, "shards": 0, "pid": 1, "agreed": {},
}  # fmt: skip
EVERY: list[Message] = [
    Register(**{name: value for name, value in REGISTER.items() if name != "type"}),
    View(1, 0, 1, [MEMBER]),
    Waiting("2 of 4 workers"),
    ComeBack("later"),
    Failed("no", "JoinTimeoutError"),
    Declare(7, [TensorSpec("x", 0, 0, [2, 3], "")]),
    Declared(7, [Placed(0, [(0, 1), (1, 0)]), Placed(-1, [], "why")]),
    Conflict("x", 0, "text", 3),
    Barrier(1),
    BarrierDone(1, MEMBER),
    Leave(suspend=True),
    Lost("server", 0, "c", "killed"),
    Departed(1),
    Retire([1, 2]),
    Shutdown(),
    Ask(3),
    Status(
        3, "s", "0.1.0", 1.5, "running", "epoch 1", [Presence("server", 0, "c", "::1", 9, 7, "0.1.0", None)]
    ),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize(
    "changes",
    [
        {"role": "scheduler"},
        {"local_size": 0},
        {"local_size": 10**12},
        {"num_workers": 0},
        {"num_workers": 10**9},
        {"worker_id": -1},
        {"port": 70_000},
        {"host": "h" * 5_000},
        {"agreed": {"x": 1}},
        {"type": "unknown"},
        {"type": 5},
    ],
)
def test_registration_out_of_bounds_does_not_decode(changes: dict[str, Any]) -> None:
    decode(msgspec.msgpack.encode(REGISTER))
    with pytest.raises(ProtocolError, match="does not decode"):
        decode(msgspec.msgpack.encode({**REGISTER, **changes}))


@pytest.mark.parametrize("shape", [[-1], [1 << 60], [1] * 65, ["x"]])
def test_shape_out_of_bounds_does_not_decode(shape: list[Any]) -> None:
    spec = {"name": "x", "generation": 0, "dtype": 0, "shape": shape}
    with pytest.raises(ProtocolError):
        decode(msgspec.msgpack.encode({"type": "declare", "id": 1, "tensors": [spec]}))


def test_noise_is_a_protocol_error_and_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2_000):
        data = bytearray(encode(rng.choice(EVERY)))
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode(bytes(data[: rng.randrange(len(data) + 1)]))
        except ProtocolError:
            pass


def test_declarations_are_cut_into_messages_that_fit() -> None:
    small = [TensorSpec(f"{n}", 0, 0, [1]) for n in range(2 * MAX_BATCH_TENSORS + 1)]
    assert [len(batch) for batch in batches(small, 1 << 20)] == [MAX_BATCH_TENSORS, MAX_BATCH_TENSORS, 1]
    large = [TensorSpec(f"{n}", 0, 0, [2 * MAX_BATCH_PARTITIONS]) for n in range(3)]  # 8 bytes a partition
    assert [len(batch) for batch in batches(large, 8)] == [1, 1, 1]
    assert [spec for batch in batches(small, 8) for spec in batch] == small
    assert list(batches([], 8)) == []
