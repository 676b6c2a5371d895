"""What travels in a handshake: its five payloads, the job's number, and the proof of the secret."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Annotated

import msgspec

from byteps import _core
from byteps.control.said import Said, Text

NONCE_BYTES = 32

Number = Annotated[int, msgspec.Meta(ge=-(1 << 62), le=1 << 62)]
Word = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Pid = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Name = Annotated[str, msgspec.Meta(max_length=64)]
Names = Annotated[tuple[Name, ...], msgspec.Meta(max_length=8)]
Public = Annotated[bytes, msgspec.Meta(max_length=32)]


class Memory(msgspec.Struct, frozen=True):
    """Where to find a random word of a process on this machine; zeros: its memory is not for reading.

    Finding the value at the address proves that the process with this number is the one that says so, and
    that the kernel lets us read it. A number alone proves nothing: containers have numbers of their own.
    """

    pid: Pid = 0
    address: Word = 0
    value: Word = 0


NO_MEMORY = Memory()


class Hello(msgspec.Struct, frozen=True):
    """Who calls and what the connection is for. ``instance`` ties the connections of one process together."""

    version: int
    package_version: str
    job_id: str
    channel: str
    role: str
    rank: Number
    shard: Number
    instance: Number
    secured: bool  # the caller has a secret and expects a challenge
    nonce: bytes
    memory: Memory = NO_MEMORY  # of a worker that a server on its machine may read
    incarnation: Word = 0  # of the caller's process
    encrypt: Name = "0"  # BYTEPS_ENCRYPT of the caller
    ciphers: Names = ()  # that it has, the best first; none: it does not encrypt
    public: Public = b""  # its half of an X25519 secret


class Challenge(msgspec.Struct, frozen=True):
    nonce: bytes
    incarnation: Word = 0  # of the acceptor's process
    cipher: Name = ""  # for this connection; none: the ends have none in common
    seal: bool = False  # the acceptor wants this connection encrypted
    public: Public = b""


class Proof(msgspec.Struct, frozen=True):
    mac: bytes
    seal: bool = False  # what follows the handshake is encrypted: the acceptor or the caller wants it


class Welcome(msgspec.Struct, frozen=True):
    mac: bytes
    memory: Memory = NO_MEMORY  # of a server that could read the caller


class Reject(Said, frozen=True):
    reason: Text


FRAME_NAMES = {
    _core.FRAME_HELLO: "HELLO",
    _core.FRAME_CHALLENGE: "CHALLENGE",
    _core.FRAME_PROOF: "PROOF",
    _core.FRAME_WELCOME: "WELCOME",
    _core.FRAME_REJECT: "REJECT",
    _core.FRAME_CONTROL: "CONTROL",
    _core.FRAME_BEAT: "BEAT",
}
DECODERS: dict[int, msgspec.msgpack.Decoder[msgspec.Struct]] = {
    _core.FRAME_HELLO: msgspec.msgpack.Decoder(Hello),
    _core.FRAME_CHALLENGE: msgspec.msgpack.Decoder(Challenge),
    _core.FRAME_PROOF: msgspec.msgpack.Decoder(Proof),
    _core.FRAME_WELCOME: msgspec.msgpack.Decoder(Welcome),
    _core.FRAME_REJECT: msgspec.msgpack.Decoder(Reject),
}


def job_name(job_id: str) -> str:
    """The job id in force: an unset one is named."""
    return job_id or "default"


def job_number(job_id: str) -> int:
    """The number that stands for the job in every header; never 0, which means "any job" to the decoder."""
    return int.from_bytes(hashlib.sha256(job_name(job_id).encode()).digest()[:8], "little") or 1


def transcript(hello: Hello, challenge: Challenge, seal: bool, epoch: int) -> bytes:
    """All that the two ends have told each other and that matters. Lengths go in front of the texts, so that
    no two different conversations are the same bytes.
    """
    texts = [hello.job_id, hello.channel, hello.role, hello.encrypt, challenge.cipher, *hello.ciphers]
    parts = [challenge.nonce, hello.nonce, hello.public, challenge.public, *(text.encode() for text in texts)]
    made = struct.pack("<I", len(parts)) + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    made += struct.pack("<qqqq", hello.rank, hello.shard, hello.instance, epoch)
    return made + struct.pack("<QQ??", hello.incarnation, challenge.incarnation, challenge.seal, seal)


def prove(secret: bytes, label: bytes, conversation: bytes, memory: Memory) -> bytes:
    """``conversation`` is the transcript, ``memory`` that of the end that proves itself."""
    context = conversation + struct.pack("<qqq", memory.pid, memory.address, memory.value)
    return hmac.new(secret, label + context, hashlib.sha256).digest()
