"""The handshake, both ends against each other and each end against faults, without a socket."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from byteps import _core
from byteps.control import hello
from byteps.control.handshake import MAX_PAYLOAD_BYTES, AcceptorHandshake, ClientHandshake, State
from byteps.control.hello import NO_MEMORY, Challenge, Hello, Memory, Proof, Reject, Welcome, job_number

Either = ClientHandshake | AcceptorHandshake
SECRET = b"correct horse"


def client(job_id: str = "job", secret: bytes = b"", **changes: Any) -> ClientHandshake:
    values: dict[str, Any] = {"channel": "data", "role": "worker", "rank": 3, "shard": 1, "epoch": 2}
    return ClientHandshake(job_id, secret, instance=77, **{**values, **changes})


def acceptor(
    job_id: str = "job", secret: bytes = b"", refusal: str = "", **changes: Any
) -> AcceptorHandshake:
    return AcceptorHandshake(job_id, secret, lambda hello, epoch: refusal, **changes)


def give(end: Either, data: bytes) -> bytes:
    """Feed bytes the way a driver does: exactly what is wanted. Returns what the end sends."""
    sent = b""
    while data and end.wanted:
        piece, data = data[: end.wanted], data[end.wanted :]
        sent += end.receive(piece)
    assert not data or end.state is State.FAILED, "the end did not want all bytes"
    return sent


def converse(caller: ClientHandshake, callee: AcceptorHandshake) -> list[int]:
    """Run both ends until nobody has anything to say; returns the types of the frames."""
    types = []
    data, end, other = caller.opening, callee, caller
    while data:
        types.append(_core.decode_header(data[: _core.HEADER_BYTES], 0)[0])
        data = give(end, data)
        end, other = other, end  # type: ignore[assignment]
    return types


def frame(kind: int, payload: msgspec.Struct | bytes, job: int = 5) -> bytes:
    encoded = payload if isinstance(payload, bytes) else msgspec.msgpack.encode(payload)
    return _core.encode_frame(kind, job, 0, 0, encoded)


H, C, P, W, R = (
    _core.FRAME_HELLO, _core.FRAME_CHALLENGE, _core.FRAME_PROOF, _core.FRAME_WELCOME, _core.FRAME_REJECT,
)  # fmt: skip


@pytest.mark.parametrize(("secret", "frames"), [(b"", [H, W]), (SECRET, [H, C, P, W])])
def test_members_of_one_job_accept_each_other(secret: bytes, frames: list[int]) -> None:
    caller, callee = client(secret=secret), acceptor(secret=secret)
    assert converse(caller, callee) == frames
    assert caller.state is callee.state is State.ACCEPTED
    assert caller.wanted == callee.wanted == 0  # not one byte more
    assert callee.peer is not None and callee.epoch == 2
    said = callee.peer
    assert (said.channel, said.role, said.rank, said.shard, said.instance) == ("data", "worker", 3, 1, 77)


@pytest.mark.parametrize(
    ("caller", "callee", "words"),
    [
        (client(secret=b"wrong"), acceptor(secret=SECRET), ["secrets differ", "BYTEPS_JOB_SECRET"]),
        (client(), acceptor(secret=SECRET), ["the caller has none", "BYTEPS_JOB_SECRET"]),
        (client(secret=SECRET), acceptor(), ["this job has none", "BYTEPS_JOB_SECRET"]),
        (client(), acceptor(refusal="no room for worker 3"), ["no room for worker 3"]),
        (client(secret=SECRET), acceptor(secret=SECRET, refusal="no room"), ["no room"]),
    ],
)
def test_refusal_is_known_to_both_ends(
    caller: ClientHandshake, callee: AcceptorHandshake, words: list[str]
) -> None:
    assert converse(caller, callee)[-1] == R
    assert caller.state is callee.state is State.FAILED
    assert caller.reason == callee.reason
    for word in words:
        assert word in caller.reason


@pytest.mark.parametrize("secret", [b"", SECRET])
@pytest.mark.parametrize("name", ["a", ""])
def test_another_job_is_refused_and_only_the_log_says_which_one_answers(name: str, secret: bytes) -> None:
    caller, callee = client(name, secret), acceptor("the-hidden-job", secret)
    sent = give(callee, caller.opening)
    assert give(caller, sent) == b"" and caller.state is callee.state is State.FAILED
    called = f"job id {name or 'default'!r} called"
    assert called in callee.reason and "job 'the-hidden-job' answers" in callee.reason
    assert called in caller.reason and "another job answers" in caller.reason
    assert "DMLC_PS_ROOT_PORT" in caller.reason and "BYTEPS_JOB_ID" in caller.reason
    # Neither the name nor the number made of it, with which a guess could be checked.
    assert b"hidden" not in sent and job_number("the-hidden-job").to_bytes(8, "little") not in sent


@pytest.mark.parametrize("data", [bytes(64), b"GET / HTTP/1.1\r\n" * 8], ids=["zeros", "http"])
def test_one_that_speaks_something_else_learns_nothing_of_the_job(data: bytes) -> None:
    callee = acceptor("the-hidden-job", SECRET)
    sent = give(callee, data)
    assert callee.state is State.FAILED and _core.decode_header(sent[:64], 0)[0] == R
    assert job_number("the-hidden-job").to_bytes(8, "little") not in sent


def test_client_with_a_secret_does_not_trust_an_acceptor_without() -> None:
    caller = client(secret=SECRET)
    give(caller, frame(W, Welcome(b"")))
    assert caller.state is State.FAILED and "did not ask for a proof" in caller.reason


def test_client_without_a_secret_cannot_be_challenged() -> None:
    caller = client()
    assert give(caller, frame(C, Challenge(b"n" * 32))) == b""
    assert caller.state is State.FAILED and "BYTEPS_JOB_SECRET" in caller.reason


def test_client_with_a_secret_does_not_trust_a_false_proof() -> None:
    caller = client(secret=SECRET)
    assert give(caller, frame(C, Challenge(b"n" * 32)))
    assert give(caller, frame(W, Welcome(b"m" * 32))) == b""
    assert caller.state is State.FAILED and "could not prove" in caller.reason


def test_proof_cannot_be_sent_back_to_its_maker() -> None:
    caller = client(secret=SECRET)
    answer = give(caller, frame(C, Challenge(b"n" * 32)))
    mac = msgspec.msgpack.decode(answer[_core.HEADER_BYTES :], type=Proof).mac
    give(caller, frame(W, Welcome(mac)))
    assert caller.state is State.FAILED


CHANGES = ["rank", "shard", "channel", "role", "instance", "nonce", "epoch", "pid", "address", "value"]
CHANGES += ["incarnation", "encrypt", "ciphers", "public"]


@pytest.mark.parametrize("change", CHANGES)
def test_proof_holds_for_one_purpose_only(change: str) -> None:
    """A proof made for one connection is worth nothing on another one."""
    said = Hello(1, "0", "job", "data", "worker", 3, 1, 77, True, b"n" * 32)
    values = {name: getattr(said, name) for name in said.__struct_fields__}
    others: Any = {"nonce": b"m" * 32, "channel": "beat", "role": "server", "encrypt": "all", "public": b"p"}
    other = (others | {"ciphers": ("AES-256-GCM",)}).get(change, 9)
    changed = Hello(**{**values, change: other}) if change in values else said
    epoch = 9 if change == "epoch" else 2
    memory = Memory(9, 9, 9)
    moved = memory if change in values or change == "epoch" else Memory(**{change: 1})
    asked, start = Challenge(b"a" * 32), (SECRET, b"byteps client")
    one, two = hello.transcript(said, asked, True, 2), hello.transcript(changed, asked, True, epoch)
    assert hello.prove(*start, one, memory) != hello.prove(*start, two, moved)


@pytest.mark.parametrize(
    "change",
    [{"nonce": b"b" * 32}, {"incarnation": 3}, {"cipher": "AES-256-GCM"}, {"seal": True}, {"public": b"p"}],
    ids=lambda change: next(iter(change)),
)
def test_proof_holds_for_one_answer_only(change: dict[str, Any]) -> None:
    """Nobody in the middle can change what the acceptor has said."""
    said, asked = Hello(1, "0", "job", "data", "worker", 3, 1, 77, True, b"n" * 32), Challenge(b"a" * 32)
    changed = msgspec.structs.replace(asked, **change)
    transcripts = {
        hello.transcript(said, each, seal, 2) for each in (asked, changed) for seal in (False, True)
    }
    assert len(transcripts) == 4


def test_texts_cannot_flow_into_each_other() -> None:
    one = Hello(1, "0", "ab", "c", "d", 0, 0, 0, True, b"")
    two = Hello(1, "0", "a", "bc", "d", 0, 0, 0, True, b"")
    asked = Challenge(b"")
    assert hello.transcript(one, asked, False, 0) != hello.transcript(two, asked, False, 0)


OURS, THEIRS = Memory(10, 11, 12), Memory(20, 21, 22)


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_memory_is_told_to_whom_can_read_the_caller(secret: bytes) -> None:
    probed = []

    def probe(memory: Memory) -> Memory:
        probed.append(memory)
        return THEIRS

    caller, callee = client(secret=secret, memory=OURS), acceptor(secret=secret, probe=probe)
    converse(caller, callee)
    assert caller.state is callee.state is State.ACCEPTED
    assert probed == [OURS] and caller.memory == THEIRS
    assert callee.peer is not None and callee.peer.memory == OURS


@pytest.mark.parametrize("memory", [NO_MEMORY, OURS])
def test_memory_that_cannot_be_read_is_forgotten(memory: Memory) -> None:
    def probe(theirs: Memory) -> Memory:
        assert theirs == OURS, "nothing to try"
        return NO_MEMORY

    caller, callee = client(secret=SECRET, memory=memory), acceptor(secret=SECRET, probe=probe)
    converse(caller, callee)
    assert caller.state is callee.state is State.ACCEPTED
    assert caller.memory == NO_MEMORY
    assert callee.peer is not None and callee.peer.memory == NO_MEMORY


def test_nobody_is_probed_before_the_proof() -> None:
    caller = client(secret=b"wrong", memory=OURS)
    callee = acceptor(secret=SECRET, probe=lambda memory: pytest.fail("probed for a stranger"))
    converse(caller, callee)
    assert callee.state is State.FAILED


def test_memory_of_the_acceptor_is_part_of_its_proof() -> None:
    caller, callee = client(secret=SECRET, memory=OURS), acceptor(secret=SECRET, probe=lambda _: THEIRS)
    answer = give(callee, give(caller, give(callee, caller.opening)))
    welcome = msgspec.msgpack.decode(answer[_core.HEADER_BYTES :], type=Welcome)
    give(caller, frame(W, msgspec.structs.replace(welcome, memory=Memory(1, 2, 3))))
    assert caller.state is State.FAILED and "could not prove" in caller.reason


def test_other_version_is_refused_with_both_numbers() -> None:
    callee = acceptor()
    said = Hello(99, "9.9", "job", "data", "worker", 0, 0, 0, False, b"n" * 32)
    give(callee, frame(H, said, job_number("job")))
    assert "version 99 (byteps '9.9') called" in callee.reason and "one version everywhere" in callee.reason


GOOD = Hello(_core.PROTOCOL_VERSION, "0", "job", "data", "worker", 0, 0, 0, False, b"n" * 32)
FAULTS = [
    ("a header of zeros", bytes(64), "not a byteps handshake"),
    (
        "an HTTP request",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: x/1.0\r\nAccept: */*\r\n\r\n",
        "not a",
    ),
    ("a frame out of turn", frame(P, Proof(b"")), "unexpected PROOF frame: this end waits for HELLO"),
    ("a control frame", frame(_core.FRAME_CONTROL, b"x"), "unexpected CONTROL frame"),
    ("a data frame", frame(_core.FRAME_PUSH, b""), "unexpected type 17 frame"),
    ("an oversized payload", frame(H, b"x" * (MAX_PAYLOAD_BYTES + 1)), f"at most {MAX_PAYLOAD_BYTES}"),
    ("no payload", frame(H, b""), "does not decode"),
    ("noise for a payload", frame(H, b"\xff" * 40), "HELLO of 40 bytes does not decode"),
    ("another payload", frame(H, Proof(b"x")), "does not decode"),
    ("a payload too deep", frame(H, b"\x81\xa1x" + b"\x91" * 3_500 + b"\xc0"), "HELLO of 3504 bytes does"),
    ("a name that is no text", frame(H, b"\x81\xa6job_id\xa2\xff\xfe"), "does not decode"),
    ("a short nonce", frame(H, msgspec.structs.replace(GOOD, nonce=b"n")), "nonce of 1 bytes"),
    ("a huge process", frame(H, msgspec.structs.replace(GOOD, memory=Memory(1 << 31))), "does not decode"),
    ("a negative address", frame(H, msgspec.structs.replace(GOOD, memory=Memory(1, -1))), "does not decode"),
    ("a huge rank", frame(H, msgspec.structs.replace(GOOD, rank=1 << 63)), "does not decode"),
]


@pytest.mark.parametrize(
    ("data", "word"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_acceptor_refuses(data: bytes, word: str) -> None:
    callee = acceptor()
    sent = give(callee, data)
    assert callee.state is State.FAILED and word in callee.reason and callee.wanted == 0
    kind, _, _, length = _core.decode_header(sent[: _core.HEADER_BYTES], 0)
    assert kind == R and length == len(sent) - _core.HEADER_BYTES


def test_damaged_payload_is_refused() -> None:
    data = bytearray(client().opening)
    data[-1] ^= 1
    callee = acceptor()
    give(callee, bytes(data))
    assert callee.state is State.FAILED


def test_long_words_of_a_stranger_fit_in_a_reject() -> None:
    caller, callee = client("j" * 3_000), acceptor()
    converse(caller, callee)
    assert caller.reason == callee.reason and len(caller.reason) <= 1_000


@pytest.mark.parametrize("kind", [H, P, _core.FRAME_CONTROL, _core.FRAME_BEAT])
def test_client_refuses_frames_out_of_turn(kind: int) -> None:
    caller = client()
    give(caller, frame(kind, b"" if kind == _core.FRAME_BEAT else b"x"))
    assert caller.state is State.FAILED and "unexpected" in caller.reason


def test_client_shows_the_reason_of_a_reject() -> None:
    caller = client()
    assert give(caller, frame(R, Reject("go away"))) == b""
    assert (caller.state, caller.reason) == (State.FAILED, "go away")


def test_the_reason_of_a_reject_is_shown_without_what_a_terminal_obeys() -> None:
    caller = client()
    payload = msgspec.msgpack.encode({"reason": "\x1b[2J\x9b31mgone\r\nERROR scheduler: forged\u202e"})
    give(caller, frame(R, payload))
    assert caller.reason == r"\x1b[2J\x9b31mgone ERROR scheduler: forged\u202e"


def test_random_bytes_never_raise(seed: int) -> None:
    rng = random.Random(seed)
    openings = [client(secret=SECRET).opening, frame(H, GOOD), frame(P, Proof(b"x" * 32))]
    for _ in range(2_000):
        data = bytearray(rng.choice(openings) if rng.random() < 0.8 else rng.randbytes(200))
        for _ in range(rng.randrange(4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        for end in (acceptor(secret=SECRET), client(secret=SECRET)):
            rest = bytes(data)
            while end.wanted and len(rest) >= end.wanted:
                piece, rest = rest[: end.wanted], rest[end.wanted :]
                end.receive(piece)
            assert end.state is not State.ACCEPTED


def test_job_numbers() -> None:
    assert job_number("") == job_number("default") != job_number("other")
    assert 0 < job_number("x") < 1 << 64
