"""Control messages: what goes in comes out, and what a peer makes up does not get in."""

from __future__ import annotations

import random
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from byteps.control.blame import Whom
from byteps.control.messages import (
    MAX_BATCH_PARTITIONS,
    MAX_BATCH_TENSORS,
    Ask,
    AskClock,
    AskNumbers,
    Assigned,
    Barrier,
    BarrierDone,
    ComeBack,
    Conflict,
    Counted,
    Declare,
    Declared,
    Departed,
    Dump,
    Failed,
    Lacking,
    Leave,
    Lost,
    Member,
    Message,
    NamesDiffer,
    Numbers,
    Origin,
    Placed,
    Prepare,
    Prepared,
    Presence,
    Refusal,
    Register,
    Report,
    Retire,
    Rival,
    Shutdown,
    Status,
    TensorSpec,
    ToldClock,
    Tracing,
    Unreachable,
    View,
    Waiting,
    Watched,
    decode,
    encode,
)
from byteps.control.said import Said, texts_of
from byteps.errors import ProtocolError
from byteps.observe.metrics import Sample
from byteps.observe.text import MAX_CHARACTERS
from byteps.worker.requests import batches

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
    Declared(7, [Placed(0, [(3, [(0, 1), (1, 0)])], partition_bytes=65_536), Placed(-1, [], "why")]),
    Conflict("x", 0, "text", 3, lack=True),
    Lacking(3, "no memory"),
    Prepare(4, [Assigned(7, "x", 0, 24, "fp16=true", 4096, [(1, [(0, 1)])])]),
    Prepared(4, [Refusal(7, "no memory", lack=True)]),
    Barrier(1),
    BarrierDone(1, MEMBER),
    Leave(suspend=True),
    Leave(failed=True, reason="why", because=Lost("worker", 0, "b", "it left")),
    Lost("server", 0, "c", "killed", 7, 1.5),
    Lost("server", 0, "c", "nothing came through", unreached_by=Whom("worker", 1, "b", 8)),
    Unreachable("server", 0, "nothing came through"),
    Departed(1),
    AskClock(12),
    ToldClock(12, 10**18, "boot b"),
    Tracing(True),
    Dump("rank 1 waits"),
    Watched(10.0),
    AskNumbers(3),
    Numbers(3, 5.0, "running", "all are there", [Counted("worker", 0, "a", 0.5, [])]),
    Report([Sample("byteps_wire_bytes", ("server 0", "sent"), 5.0)]),
    Retire([1, 2]),
    Shutdown(),
    Ask(3),
    Rival("a", 7, Origin(5, "launch", "train.py", "/home", "bob", 1.5)),
    NamesDiffer("only on worker 0", True),
    Status(
        3, "s", "0.1.0", 1.5, "running", "epoch 1", [Presence("server", 0, "c", "::1", 9, 7, "0.1.0", None)]
    ),
]


def test_none_is_forgotten_here() -> None:
    assert {type(message) for message in EVERY} == set(get_args(Message))


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
        {"agreed": {"x": 1}},
        {"agreed": {str(n): "" for n in range(65)}},
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


def test_more_tensors_than_fit_into_one_declaration_do_not_decode() -> None:
    spec = {"name": "x", "generation": 0, "dtype": 0, "shape": []}
    for count in (MAX_BATCH_TENSORS, MAX_BATCH_TENSORS + 1):
        data = msgspec.msgpack.encode({"type": "declare", "id": 1, "tensors": [spec] * count})
        if count == MAX_BATCH_TENSORS:
            decode(data)
            continue
        with pytest.raises(ProtocolError):
            decode(data)


@pytest.mark.parametrize("run", [[0, [[0, 0]]], [1 << 40, [[0, 0]]], [1, [[0, 70_000]]], [1, [[-1, 0]]]])
def test_places_out_of_bounds_do_not_decode(run: list[Any]) -> None:
    placed = {"tensor_id": 0, "placement": [run]}
    with pytest.raises(ProtocolError):
        decode(msgspec.msgpack.encode({"type": "declared", "id": 1, "tensors": [placed]}))


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


def test_a_message_that_is_nested_too_deeply_does_not_decode() -> None:
    with pytest.raises(ProtocolError, match="does not decode"):
        decode(b"\x82\xa4type\xa8shutdown\xa1x" + b"\x91" * 100_000 + b"\xc0")


def test_every_message_with_a_text_cleans_it() -> None:
    """Also parts of messages: whoever adds a text for people must derive from Said."""
    kinds = {*get_args(Message), Member, Origin, Placed, Presence, TensorSpec}
    plain = {(kind, name) for kind in kinds for name, hint in get_type_hints(kind).items() if hint is str}
    exact = {(kind, name) for kind, name in plain if name not in texts_of(kind)}
    assert {name for _, name in exact} <= {"name", "codec", "error"}  # compared, and not text for people
    spoken = {kind for kind in kinds if texts_of(kind)}
    assert Waiting in spoken and Lost in spoken and Barrier not in spoken
    assert all(issubclass(kind, Said) for kind in spoken)


NASTY = "\x1b]0;owned\x07\nWARNING scheduler: \x9b2J" + "x" * 10_000


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_no_text_of_a_peer_comes_in_with_escape_codes(message: Message) -> None:
    changed = msgspec.to_builtins(message)
    for name in texts_of(type(message)):
        changed[name] = {NASTY: NASTY} if isinstance(changed[name], dict) else NASTY
    read = decode(msgspec.msgpack.encode(changed))
    for name in texts_of(type(message)):
        shown = getattr(read, name)
        for text in shown.items() if isinstance(shown, dict) else [shown]:
            text = "".join(text)
            assert text.isprintable() and len(text) <= 2 * MAX_CHARACTERS and "owned" in text


def test_declarations_are_cut_into_messages_that_fit() -> None:
    small = [TensorSpec(f"{n}", 0, 0, [1]) for n in range(2 * MAX_BATCH_TENSORS + 1)]
    assert [len(batch) for batch in batches(small, 1 << 20)] == [MAX_BATCH_TENSORS, MAX_BATCH_TENSORS, 1]
    large = [TensorSpec(f"{n}", 0, 0, [2 * MAX_BATCH_PARTITIONS]) for n in range(3)]  # 8 bytes a partition
    assert [len(batch) for batch in batches(large, 8)] == [1, 1, 1]
    assert [spec for batch in batches(small, 8) for spec in batch] == small
    assert list(batches([], 8)) == []
