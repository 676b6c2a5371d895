"""The handshake that opens every connection, as a state machine that does no I/O.

Theory. The client opens and speaks first; the acceptor decides. Both prove that they know the job's
secret without sending it: each picks a fresh nonce, and a proof is an HMAC over both nonces and over what
the connection is for, with another label for each direction so that no proof can be sent back to its
maker. Without a secret the middle two frames fall away; one end with and one without never get on.

    client                                   acceptor
      | -- HELLO who, what for, nonce ---------> |     version, job id and admission are checked here
      | <-------------- CHALLENGE nonce, cipher -|     (only with a secret)
      | -- PROOF mac, sealed or not -----------> |
      | <------------------------- WELCOME mac --|     or REJECT reason, at any point

    state       frame       next
    -------------------------------------------------------------
    GREETING    HELLO       CHALLENGED, ACCEPTED or FAILED  (acceptor)
    CHALLENGED  PROOF       ACCEPTED or FAILED              (acceptor)
    CALLING     CHALLENGE   PROVING or FAILED               (client)
    CALLING     WELCOME     ACCEPTED or FAILED              (client; one with a secret insists on the proof)
    PROVING     WELCOME     ACCEPTED or FAILED              (client)
    CALLING, PROVING  REJECT  FAILED                        (client)
    anything else           FAILED

A connection is encrypted from its first byte after PROOF and WELCOME on if either end wants it; members must
have the same BYTEPS_ENCRYPT. The proofs cover all that was said about it, and the keys are made of the same
(``sealing``): nobody in the middle can talk the two out of it.

The driver reads exactly ``wanted`` bytes, gives them to ``receive`` and sends what that returns, until
``state`` is ACCEPTED or FAILED. So it never reads a byte that belongs to whoever uses the socket next.

A caller that has not proved itself learns what it needs to mend its own settings, and nothing of the job: the
acceptor answers with the job number that the caller used, and keeps the name of its own job for its log.
"""

from __future__ import annotations

import enum
import hmac
import secrets
from collections.abc import Callable
from typing import ClassVar

import msgspec

from byteps import _core
from byteps.control.hello import (
    DECODERS,
    FRAME_NAMES,
    NO_MEMORY,
    NONCE_BYTES,
    Challenge,
    Hello,
    Memory,
    Proof,
    Reject,
    Welcome,
    job_name,
    job_number,
    prove,
    transcript,
)
from byteps.control.origin import incarnation
from byteps.control.said import unpack
from byteps.control.sealing import OFF, Sealing, choose, derive, half
from byteps.errors import ProtocolError
from byteps.version import __version__

MAX_PAYLOAD_BYTES = 4_096  # nobody is trusted yet, so nobody may make us hold more
TIMEOUT_S = 10.0  # from the first byte to the verdict, on both ends
NO_JOB = 1  # in a REJECT for one that has not said its own: a number that tells nothing, and not 0

ALIKE = "set the same BYTEPS_JOB_SECRET on all processes of the job, or on none"
NO_SECRET = "the caller has none; set BYTEPS_JOB_SECRET (or BYTEPS_JOB_SECRET_FILE) to the job's value there"
ONE_VERSION = "install one version everywhere"
ENCRYPT_ALIKE = "set it alike on all processes of the job"
ONE_OPENSSL = "OpenSSL's libcrypto of version 1.1.1 or later is needed on both"
MEMBERS = ("worker", "server")
OWN_PORT = "give each job its own DMLC_PS_ROOT_PORT, or set BYTEPS_JOB_ID alike"


class State(enum.Enum):
    GREETING = "waits for HELLO"
    CHALLENGED = "waits for PROOF"
    CALLING = "waits for CHALLENGE or WELCOME"
    PROVING = "waits for WELCOME"
    ACCEPTED = "accepted"
    FAILED = "failed"


def no_probe(theirs: Memory) -> Memory:
    """Payloads do not go by address."""
    return NO_MEMORY


Table = dict[tuple[State, int], Callable[..., bytes]]


class _Handshake:
    """What both ends share: framing, the table, and failing."""

    def __init__(
        self, job_id: str, secret: bytes, start: State, sealing: Sealing = OFF, near: bool = True
    ) -> None:
        self.state = start
        self.reason = ""  # set when state is FAILED
        self.wanted = _core.HEADER_BYTES
        self.epoch = 0
        self._job_id = job_name(job_id)
        self._job = job_number(job_id)
        self._secret = secret
        self._header = b""
        self._type = 0
        self._sealing = sealing
        self._half = half(sealing)
        self.near = near  # both ends are on this machine
        self.keys: _core.SessionKeys | None = None  # once accepted; None: what follows is not encrypted
        self.forward = False  # the keys cannot be made again from the job secret

    def receive(self, data: bytes) -> bytes:
        """Takes exactly ``wanted`` bytes; returns what to send now, maybe nothing."""
        if self.state in (State.ACCEPTED, State.FAILED) or len(data) != self.wanted:
            raise ValueError(f"{len(data)} bytes given, {self.wanted} wanted, state {self.state.name}")
        try:
            if not self._header:
                return self._take_header(data)
            _core.check_payload(self._header, data)
            payload = unpack(DECODERS[self._type], data, FRAME_NAMES[self._type])
        except _core.WireError as error:
            return self._fail(f"the bytes received are not a byteps handshake: {error}")
        except ProtocolError as error:
            return self._fail(str(error))
        self._header, self.wanted = b"", _core.HEADER_BYTES
        sent = self._transitions[self.state, self._type](self, payload)
        if self.state in (State.ACCEPTED, State.FAILED):
            self.wanted = 0
        return sent

    def _take_header(self, header: bytes) -> bytes:
        self._type, epoch, _, length = _core.decode_header(header, 0)
        if (self.state, self._type) not in self._transitions:
            name = FRAME_NAMES.get(self._type, f"type {self._type}")
            return self._fail(f"unexpected {name} frame: this end {self.state.value}")
        if length > MAX_PAYLOAD_BYTES:
            return self._fail(f"handshake payload of {length} bytes, at most {MAX_PAYLOAD_BYTES} are allowed")
        if self._type == _core.FRAME_HELLO:
            self.epoch = epoch
            self._job = int.from_bytes(header[8:16], "little") or NO_JOB
        self._header, self.wanted = header, length
        return self.receive(b"") if length == 0 else b""

    def _frame(self, kind: int, payload: msgspec.Struct) -> bytes:
        return _core.encode_frame(kind, self._job, self.epoch, 0, msgspec.msgpack.encode(payload))

    def _make_keys(self, hello: Hello, challenge: Challenge, from_caller: bool) -> None:
        """ValueError when the other end's half of a secret is none."""
        theirs = challenge.public if from_caller else hello.public
        shared = self._half.shared(theirs)
        conversation = transcript(hello, challenge, True, self.epoch)
        keys = derive(self._secret, shared, challenge.nonce + hello.nonce, conversation)
        own, other = keys if from_caller else keys[::-1]
        self.keys = _core.SessionKeys(challenge.cipher, own, other)
        self.forward = bool(shared)

    def _fail(self, reason: str, told: str = "") -> bytes:
        """``told``: what the other end may know of the reason, if that is less."""
        self.state, self.wanted = State.FAILED, 0
        self.reason = reason[:1_000]  # it may quote a stranger at length
        return self._farewell((told or reason)[:1_000])

    def _farewell(self, reason: str) -> bytes:
        return b""

    _transitions: ClassVar[Table] = {}


class ClientHandshake(_Handshake):
    """The calling end. ``opening`` is sent first; then feed it like any driver would."""

    def __init__(
        self,
        job_id: str,
        secret: bytes,
        channel: str,
        role: str,
        rank: int = -1,
        shard: int = 0,
        epoch: int = 0,
        instance: int = 0,
        memory: Memory = NO_MEMORY,
        sealing: Sealing = OFF,
        expected: int = 0,
    ) -> None:
        """``expected``: the incarnation that must answer; 0: any."""
        super().__init__(job_id, secret, State.CALLING, sealing)
        self._expected = expected
        self.memory = NO_MEMORY  # the acceptor's, if it could read ours
        self.epoch = epoch
        self._hello = Hello(
            version=_core.PROTOCOL_VERSION,
            package_version=__version__,
            job_id=self._job_id,
            channel=channel,
            role=role,
            rank=rank,
            shard=shard,
            instance=instance,
            secured=bool(secret),
            nonce=secrets.token_bytes(NONCE_BYTES),
            memory=memory,
            incarnation=incarnation(),
            encrypt=sealing.setting,
            ciphers=sealing.ciphers,
            public=self._half.public,
        )
        self._challenge = Challenge(b"")
        self._seal = False
        self.opening = self._frame(_core.FRAME_HELLO, self._hello)

    def _challenged(self, challenge: Challenge) -> bytes:
        self.state = State.PROVING
        if len(challenge.nonce) != NONCE_BYTES:
            return self._fail(f"CHALLENGE has a nonce of {len(challenge.nonce)} bytes, not {NONCE_BYTES}")
        if not self._secret:
            return self._fail(f"the other end wants a proof of the job secret, and {NO_SECRET}")
        if self._expected and challenge.incarnation != self._expected:
            return self._fail("another process answers at this address than the scheduler has told of")
        self._challenge = challenge
        self._seal = challenge.seal or self._sealing.wants(self.near)
        mac = self._prove(b"byteps client", self._hello.memory)
        return self._frame(_core.FRAME_PROOF, Proof(mac, self._seal))

    def _prove(self, label: bytes, memory: Memory) -> bytes:
        conversation = transcript(self._hello, self._challenge, self._seal, self.epoch)
        return prove(self._secret, label, conversation, memory)

    def _unasked_welcome(self, welcome: Welcome) -> bytes:
        if self._secret:
            return self._fail(f"the other end did not ask for a proof of the job secret; {ALIKE}")
        self.state, self.memory = State.ACCEPTED, welcome.memory
        return b""

    def _welcomed(self, welcome: Welcome) -> bytes:
        if not hmac.compare_digest(welcome.mac, self._prove(b"byteps acceptor", welcome.memory)):
            return self._fail(f"the other end could not prove that it knows the job secret; {ALIKE}")
        if self._seal:
            try:
                self._make_keys(self._hello, self._challenge, from_caller=True)
            except ValueError as error:
                return self._fail(f"no keys can be agreed on: {error}")
        self.state, self.memory = State.ACCEPTED, welcome.memory
        return b""

    def _rejected(self, reject: Reject) -> bytes:
        return self._fail(reject.reason)

    _transitions: ClassVar[Table] = {
        (State.CALLING, _core.FRAME_CHALLENGE): _challenged,
        (State.CALLING, _core.FRAME_WELCOME): _unasked_welcome,
        (State.CALLING, _core.FRAME_REJECT): _rejected,
        (State.PROVING, _core.FRAME_WELCOME): _welcomed,
        (State.PROVING, _core.FRAME_REJECT): _rejected,
    }


class AcceptorHandshake(_Handshake):
    """The accepting end; ``peer`` is the HELLO once it is there.

    ``admit(hello, epoch)`` says why this peer may not come in, or nothing. ``probe(theirs)`` tries to read
    the peer's memory and returns ours if it can; ``peer.memory`` is empty if it cannot.
    """

    def __init__(
        self,
        job_id: str,
        secret: bytes,
        admit: Callable[[Hello, int], str],
        probe: Callable[[Memory], Memory] = no_probe,
        sealing: Sealing = OFF,
        near: bool = True,
    ) -> None:
        super().__init__(job_id, secret, State.GREETING, sealing, near)
        self._job = NO_JOB
        self.peer: Hello | None = None
        self._admit = admit
        self._probe = probe
        self._challenge = Challenge(secrets.token_bytes(NONCE_BYTES), incarnation())
        self._seal = False

    def _greeted(self, hello: Hello) -> bytes:
        self.peer = hello
        if hello.version != _core.PROTOCOL_VERSION:
            called = f"protocol version {hello.version} (byteps {hello.package_version!r}) called, version "
            return self._fail(
                f"{called}{_core.PROTOCOL_VERSION} (byteps {__version__!r}) answers; {ONE_VERSION}",
                told=f"{called}{_core.PROTOCOL_VERSION} answers; {ONE_VERSION}",
            )
        if hello.job_id != self._job_id:
            called = f"job id {hello.job_id!r} called,"
            return self._fail(
                f"{called} job {self._job_id!r} answers at this address; {OWN_PORT}",
                told=f"{called} another job answers at this address; {OWN_PORT}",
            )
        if len(hello.nonce) != NONCE_BYTES:
            return self._fail(f"HELLO has a nonce of {len(hello.nonce)} bytes, not {NONCE_BYTES}")
        if self._secret and not hello.secured:
            return self._fail(f"this job has a secret, and {NO_SECRET}")
        if hello.secured and not self._secret:
            return self._fail(f"the caller has a job secret, and this job has none; {ALIKE}")
        if self._secret:
            self.state = State.CHALLENGED
            self._challenge = msgspec.structs.replace(
                self._challenge,
                cipher=choose(hello.ciphers, self._sealing.ciphers),
                seal=self._sealing.wants(self.near),
                public=self._half.public,
            )
            return self._frame(_core.FRAME_CHALLENGE, self._challenge)
        return self._accept(hello)

    def _proved(self, proof: Proof) -> bytes:
        assert self.peer is not None  # the table: PROOF only after HELLO
        self._seal = proof.seal
        mac = self._prove(b"byteps client", self.peer, self.peer.memory)
        if not hmac.compare_digest(proof.mac, mac):
            return self._fail(f"the job secrets differ; {ALIKE}")
        if unlike := self._unlike(self.peer):
            return self._fail(unlike)
        return self._accept(self.peer)

    def _unlike(self, hello: Hello) -> str:
        """Why the two ends do not agree on encryption, or nothing. Makes the keys."""
        own, called = self._sealing.setting, f"the {hello.role} that calls"
        if hello.role in MEMBERS and hello.encrypt != own:
            theirs = f"{called} has BYTEPS_ENCRYPT={hello.encrypt}"
            return f"{theirs}, the one that answers has {own}; {ENCRYPT_ALIKE}"
        if self._challenge.seal and not self._seal:
            return f"this job is encrypted (BYTEPS_ENCRYPT={own}), and {called} does not encrypt"
        if not self._seal:
            return ""
        if not self._challenge.cipher:
            return f"{called} and the one that answers have no cipher in common; {ONE_OPENSSL}"
        try:
            self._make_keys(hello, self._challenge, from_caller=False)
        except ValueError as error:
            return f"no keys can be agreed on: {error}"
        return ""

    def _prove(self, label: bytes, hello: Hello, memory: Memory) -> bytes:
        conversation = transcript(hello, self._challenge, self._seal, self.epoch)
        return prove(self._secret, label, conversation, memory)

    def _accept(self, hello: Hello) -> bytes:
        # Admission comes after the proof: a stranger learns nothing about who is in the job.
        refusal = self._admit(hello, self.epoch)
        if refusal:
            return self._fail(refusal)
        self.state = State.ACCEPTED
        memory = self._probe(hello.memory) if hello.memory.pid > 0 else NO_MEMORY
        if memory == NO_MEMORY:
            self.peer = msgspec.structs.replace(hello, memory=NO_MEMORY)
        mac = self._prove(b"byteps acceptor", hello, memory) if self._secret else b""
        return self._frame(_core.FRAME_WELCOME, Welcome(mac, memory))

    def _farewell(self, reason: str) -> bytes:
        return self._frame(_core.FRAME_REJECT, Reject(reason))

    _transitions: ClassVar[Table] = {
        (State.GREETING, _core.FRAME_HELLO): _greeted,
        (State.CHALLENGED, _core.FRAME_PROOF): _proved,
    }
