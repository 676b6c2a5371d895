"""Which connections are encrypted, with which keys: both ends agree, and nobody in the middle has a say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_handshake import SECRET, C, H, P, acceptor, client, converse, frame, give
from test_protocol_vectors import fields_of

from byteps import _core
from byteps.config import load
from byteps.control import sealing
from byteps.control.handshake import AcceptorHandshake, ClientHandshake, State
from byteps.control.hello import Challenge, Hello, Proof, transcript
from byteps.control.sealing import Half, Sealing, choose, derive, hkdf, sealing_of
from byteps.errors import ConfigError

VECTORS = Path(__file__).parents[2] / "protocol" / "vectors" / "sealed"
AES, CHACHA = "AES-256-GCM", "ChaCha20-Poly1305"
ON, ALL, OFF = Sealing("1", (AES, CHACHA)), Sealing("all", (AES, CHACHA)), Sealing()


def shaken(
    ours: Sealing = ON, theirs: Sealing = ON, near: tuple[bool, bool] = (False, False), **changes: Any
) -> tuple[ClientHandshake, AcceptorHandshake]:
    caller = client(secret=SECRET, sealing=ours, **changes)
    callee = acceptor(secret=SECRET, sealing=theirs, near=near[1])
    caller.near = near[0]
    converse(caller, callee)
    return caller, callee


def check_talk(caller: ClientHandshake, callee: AcceptorHandshake) -> None:
    """What each end seals, the other one opens, and nobody else: not even the end itself."""
    assert caller.keys is not None and callee.keys is not None
    for one, other in ((caller.keys, callee.keys), (callee.keys, caller.keys)):
        sealed = _core.Sealer(one).seal(b"a gradient" * 20_000)
        assert _core.Opener(other).feed(sealed) == b"a gradient" * 20_000
        with pytest.raises(_core.WireError, match="reflected"):
            _core.Opener(one).feed(sealed)


@pytest.mark.parametrize("near", [(False, False), (True, False), (False, True)])
def test_either_end_can_see_that_a_wire_is_between_them(near: tuple[bool, bool]) -> None:
    caller, callee = shaken(near=near)
    assert caller.state is callee.state is State.ACCEPTED
    assert caller.forward and callee.forward
    check_talk(caller, callee)


@pytest.mark.parametrize(("setting", "sealed"), [(OFF, False), (ON, False), (ALL, True)])
def test_inside_a_machine_only_all_encrypts(setting: Sealing, sealed: bool) -> None:
    caller, callee = shaken(setting, setting, near=(True, True))
    assert caller.state is callee.state is State.ACCEPTED
    assert (caller.keys is not None) == (callee.keys is not None) == sealed


@pytest.mark.parametrize("near", [(False, False), (True, True)])
@pytest.mark.parametrize(("ours", "theirs"), [(ON, OFF), (OFF, ON), (ALL, ON), (ON, ALL), (OFF, ALL)])
def test_members_that_differ_are_named(ours: Sealing, theirs: Sealing, near: tuple[bool, bool]) -> None:
    caller, callee = shaken(ours, theirs, near)
    assert caller.state is callee.state is State.FAILED
    for reason in (caller.reason, callee.reason):
        assert f"the worker that calls has BYTEPS_ENCRYPT={ours.setting}" in reason
        assert f"the one that answers has {theirs.setting}; set it alike" in reason


def test_an_observer_takes_what_the_job_has() -> None:
    able = Sealing("0", (AES, CHACHA))
    for theirs, sealed in ((ON, True), (OFF, False)):
        caller, callee = shaken(able, theirs, channel="status", role="observer")
        assert caller.state is callee.state is State.ACCEPTED
        assert (caller.keys is not None) == (callee.keys is not None) == sealed
    caller, callee = shaken(OFF, ON, channel="status", role="observer")
    assert callee.state is State.FAILED and "no cipher in common" in callee.reason


def test_the_cipher_is_one_that_both_processors_are_good_at() -> None:
    assert choose([AES, CHACHA], [AES, CHACHA]) == AES
    assert choose([AES, CHACHA], [CHACHA, AES]) == choose([CHACHA, AES], [AES, CHACHA]) == CHACHA
    assert choose([AES], [CHACHA, AES]) == choose([CHACHA, AES], [AES]) == AES
    assert choose([AES], [CHACHA]) == choose([], [AES]) == choose([AES], []) == ""


def test_another_process_than_the_scheduler_has_told_of() -> None:
    caller, _ = shaken(expected=12345)
    assert caller.state is State.FAILED and "another process answers" in caller.reason


HELLO_CHANGES: list[dict[str, Any]] = [
    {"ciphers": ()}, {"ciphers": (CHACHA,)}, {"encrypt": "0"}, {"public": b""}, {"public": b"p" * 32},
    {"incarnation": 7}, {"rank": 4}, {"role": "observer"},
]  # fmt: skip
CHALLENGE_CHANGES: list[dict[str, Any]] = [
    {"cipher": ""}, {"cipher": CHACHA}, {"seal": False}, {"public": b""}, {"public": b"p" * 32},
    {"incarnation": 7},
]  # fmt: skip


def _changed(data: bytes, kind: type[msgspec.Struct], code: int, changes: dict[str, Any]) -> bytes:
    said = msgspec.msgpack.decode(data[_core.HEADER_BYTES :], type=kind)
    _, epoch, _, _ = _core.decode_header(data[: _core.HEADER_BYTES], 0)
    job = int.from_bytes(data[8:16], "little")
    payload = msgspec.msgpack.encode(msgspec.structs.replace(said, **changes))
    return _core.encode_frame(code, job, epoch, 0, payload)


@pytest.mark.parametrize("changes", HELLO_CHANGES, ids=str)
def test_a_hello_that_was_changed_on_its_way_ends_it(changes: dict[str, Any]) -> None:
    caller, callee = client(secret=SECRET, sealing=ON), acceptor(secret=SECRET, sealing=ON, near=False)
    caller.near = False
    asked = give(callee, _changed(caller.opening, Hello, H, changes))
    give(callee, give(caller, asked))
    assert callee.state is State.FAILED and callee.keys is None and "secrets differ" in callee.reason


@pytest.mark.parametrize("changes", CHALLENGE_CHANGES, ids=str)
def test_a_challenge_that_was_changed_on_its_way_ends_it(changes: dict[str, Any]) -> None:
    caller, callee = client(secret=SECRET, sealing=ON), acceptor(secret=SECRET, sealing=ON, near=False)
    asked = _changed(give(callee, caller.opening), Challenge, C, changes)
    give(callee, give(caller, asked))
    assert callee.state is State.FAILED and callee.keys is None


def test_a_proof_whose_wish_was_taken_out_ends_it() -> None:
    caller, callee = client(secret=SECRET, sealing=ON), acceptor(secret=SECRET, sealing=ON, near=True)
    caller.near = False  # only the caller knows that there is a wire
    proof = give(caller, give(callee, caller.opening))
    assert msgspec.msgpack.decode(proof[_core.HEADER_BYTES :], type=Proof).seal
    give(callee, _changed(proof, Proof, P, {"seal": False}))
    assert callee.state is State.FAILED and "secrets differ" in callee.reason


def test_a_half_that_is_none_ends_it() -> None:
    caller = client(secret=SECRET, sealing=ON)
    callee = acceptor(secret=SECRET, sealing=ON, near=False)
    weak = msgspec.structs.replace(caller._hello, public=bytes(32))  # its owner is as much a member as we are
    caller._hello = weak
    caller.opening = frame(H, weak, int.from_bytes(caller.opening[8:16], "little"))
    caller.epoch = 0
    converse(caller, callee)
    assert callee.state is State.FAILED and "X25519" in callee.reason


def test_without_x25519_there_are_keys_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "half", lambda _: Half())
    monkeypatch.setattr("byteps.control.handshake.half", lambda _: Half())
    caller, callee = shaken()
    assert not caller.forward and not callee.forward
    check_talk(caller, callee)


def test_keys_never_come_back() -> None:
    """Counted over reconnects, restarts and epochs: no two connections share a key, and none both ways."""
    seen = set()
    start = (SECRET, b"shared", b"nonces" * 8)
    for rank in range(3):
        for shard in range(2):
            for epoch in range(3):
                for incarnation in range(3):
                    said = Hello(
                        *(1, "0", "job", "data", "worker", rank, shard, 77, True, b"n" * 32),
                        incarnation=incarnation,
                    )
                    words = transcript(said, Challenge(b"a" * 32), True, epoch)
                    seen |= set(derive(*start, words))
    assert len(seen) == 2 * 3 * 2 * 3 * 3
    # And the same process that connects again for the same purpose has other nonces and another X25519 half.
    records = set()
    for _ in range(200):
        caller, callee = shaken()
        assert caller.keys is not None and callee.keys is not None
        for keys in (caller.keys, callee.keys):
            sealer = _core.Sealer(keys)
            # With a key and a number that were used before, this would be the same bytes again.
            records |= {sealer.seal(bytes(64))[16:] for _ in range(3)}
    assert len(records) == 200 * 2 * 3


# RFC 5869, appendix A: cases 1 and 3.
@pytest.mark.parametrize(
    ("salt", "info", "made"),
    [
        (
            "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        ("", "", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
    ],
)  # fmt: skip
def test_hkdf_of_the_rfc(salt: str, info: str, made: str) -> None:
    assert hkdf(bytes.fromhex(salt), b"\x0b" * 22, bytes.fromhex(info), 42).hex() == made


def test_vector_of_the_keys() -> None:
    fields = fields_of(VECTORS / "keys.txt")
    said = Hello(
        version=7,
        package_version="0",
        job_id=fields["job_id"],
        channel=fields["channel"],
        role=fields["role"],
        rank=int(fields["rank"]),
        shard=int(fields["shard"]),
        instance=int(fields["instance"]),
        secured=True,
        nonce=bytes.fromhex(fields["caller_nonce"]),
        incarnation=int(fields["caller_incarnation"]),
        encrypt=fields["encrypt"],
        ciphers=tuple(fields["ciphers"].split(", ")),
        public=bytes.fromhex(fields["caller_public"]),
    )
    asked = Challenge(
        bytes.fromhex(fields["acceptor_nonce"]),
        int(fields["acceptor_incarnation"]),
        fields["cipher"],
        bool(int(fields["acceptor_wants"])),
        bytes.fromhex(fields["acceptor_public"]),
    )
    private, theirs = bytes.fromhex(fields["caller_private"]), asked.public
    assert _core.x25519_public(private) == said.public
    shared = _core.x25519_shared(private, theirs)
    assert shared == _core.x25519_shared(bytes.fromhex(fields["acceptor_private"]), said.public)
    assert shared.hex() == fields["shared"]
    words = transcript(said, asked, True, int(fields["epoch"]))
    assert words.hex() == fields["transcript"]
    keys = derive(bytes.fromhex(fields["secret"]), shared, asked.nonce + said.nonce, words)
    assert [key.hex() for key in keys] == [fields["key_from_caller"], fields["key_from_acceptor"]]


@pytest.mark.parametrize("name", ["record_aes", "record_chacha"])
def test_vector_of_records(name: str) -> None:
    """native/tests/test_sealed_vectors.cc reads the same files."""
    fields = fields_of(VECTORS / f"{name}.txt")
    keys = (bytes.fromhex(fields["key"]), bytes(32))
    stream = bytes.fromhex(fields["first"]) + bytes.fromhex(fields["second"])
    opener = _core.Opener(_core.SessionKeys(fields["cipher"], keys[1], keys[0]))
    assert opener.feed(stream).hex() == fields["plain_first"] + fields["plain_second"]
    sealer = _core.Sealer(_core.SessionKeys(fields["cipher"], *keys))
    assert b"".join(sealer.seal(bytes.fromhex(fields[f"plain_{n}"])) for n in ("first", "second")) == stream


def test_errors_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"BYTEPS_ENCRYPT=1 needs a job secret.*bpslaunch"):
        sealing_of(load({"BYTEPS_ENCRYPT": "1"}))
    with pytest.raises(ConfigError, match="BYTEPS_ENCRYPT='yes' does not parse: expected one of 0, 1, all"):
        load({"BYTEPS_ENCRYPT": "yes"})
    secured = {"BYTEPS_JOB_SECRET": "hush-hush-hush"}
    assert sealing_of(load(secured)) == sealing.OFF
    assert set(sealing_of(load({**secured, "BYTEPS_ENCRYPT": "ALL"})).ciphers) == {AES, CHACHA}
    assert all(not Sealing().wants(near) for near in (True, False))

    def missing() -> list[str]:
        raise RuntimeError("OpenSSL's libcrypto cannot be loaded (no such file); install OpenSSL 3")

    sealing._ciphers.cache_clear()
    monkeypatch.setattr(_core, "ciphers", missing)
    with pytest.raises(ConfigError, match=r"BYTEPS_ENCRYPT=1 cannot be had: OpenSSL's libcrypto"):
        sealing_of(load({**secured, "BYTEPS_ENCRYPT": "1"}))
    assert sealing.able() == sealing.OFF
    sealing._ciphers.cache_clear()
