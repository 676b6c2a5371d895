"""Every message of the control plane: msgpack of tagged structs, one per CONTROL frame.

Numbers that a peer sends and that later size a loop or a list are bounded here, so that a message that
decodes is also safe to work with. Unknown tags, missing fields and wrong types raise ProtocolError.

    member -> scheduler     Register  Declare  Barrier  Leave  Lost (an accusation: "I cannot reach it")
    scheduler -> member     Waiting  ComeBack  View  Declared  Conflict  BarrierDone  Departed  Failed  Lost
    scheduler -> servers    Retire  Shutdown
    observer <-> scheduler  Ask, answered with a Status: on a connection of its own, by whoever has the secret
"""

from __future__ import annotations

from typing import Annotated, Literal, Union

import msgspec
from msgspec import Meta, Struct

from byteps.errors import ProtocolError

Role = Literal["worker", "server"]
Count = Annotated[int, Meta(ge=0, le=65_536)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Local = Annotated[int, Meta(ge=0, le=4_096)]
Rank = Annotated[int, Meta(ge=0, le=1 << 30)]
Extent = Annotated[int, Meta(ge=0, le=1 << 48)]
Text = Annotated[str, Meta(max_length=4_096)]


class Member(Struct, frozen=True):
    """One process of a formed job, as everybody sees it."""

    role: Role
    rank: Rank
    host: Text
    address: Text
    port: Port
    shards: Count
    worker_id: Rank
    local_rank: Local
    local_size: Local
    pid: int

    def __str__(self) -> str:
        return f"{self.role} {self.rank} (host {self.host})"


class Register(Struct, frozen=True, tag="register"):
    """What a process says about itself; ``agreed`` holds the settings that all members must share."""

    role: Role
    worker_id: Rank
    local_rank: Local
    local_size: Annotated[int, Meta(ge=1, le=4_096)]
    global_rank: Rank | None
    num_workers: Annotated[int, Meta(ge=1, le=65_536)]
    num_servers: Count
    host: Text
    address: Text
    port: Port
    shards: Count
    pid: int
    agreed: dict[str, str]
    clock_s: float = 0.0  # its clock as it sends this, seconds since the epoch; 0: it did not say


class View(Struct, frozen=True, tag="view"):
    """The job is complete: who is in it, and the receiver's own rank. ``size`` counts workers."""

    epoch: Rank
    rank: Rank
    size: Rank
    members: list[Member]

    def workers(self) -> list[Member]:
        """All workers in rank order."""
        return [member for member in self.members if member.role == "worker"]

    def servers(self) -> list[Member]:
        """All servers in rank order."""
        return [member for member in self.members if member.role == "server"]


class Waiting(Struct, frozen=True, tag="waiting"):
    """Why the receiver still has to wait, in words."""

    text: str


class ComeBack(Struct, frozen=True, tag="come-back"):
    """The receiver has no place now, and may have one soon: it shall try again until its deadline."""

    text: str


class Failed(Struct, frozen=True, tag="failed"):
    """Start-up failed or the job cannot go on; ``error`` is the name of the exception to raise."""

    text: str
    error: str = "JoinError"


class TensorSpec(Struct, frozen=True):
    """One tensor as a worker declares it; ``dtype`` is a number of the wire (float32 is 0).

    ``direct``: this rank pushes it to the servers itself, without the group of its machine. Then perhaps only
    some ranks declare it; those that do must agree.
    """

    name: Text
    generation: Rank
    dtype: int
    shape: Annotated[list[Extent], Meta(max_length=64)]
    codec: Text = ""
    direct: bool = False


class Placed(Struct, frozen=True):
    """Where a declared tensor lives: one (server, shard) per partition, none in a job without servers.

    ``error`` set: it was refused.
    """

    tensor_id: int
    placement: list[tuple[int, int]]
    error: str = ""


class Declare(Struct, frozen=True, tag="declare"):
    id: int
    tensors: list[TensorSpec]


class Declared(Struct, frozen=True, tag="declared"):
    id: int
    tensors: list[Placed]


class Conflict(Struct, frozen=True, tag="conflict"):
    """Ranks disagree on a tensor; goes to every worker that declared it."""

    name: str
    generation: int
    text: str
    tensor_id: int


class Barrier(Struct, frozen=True, tag="barrier"):
    id: int


class BarrierDone(Struct, frozen=True, tag="barrier_done"):
    """Everybody came; or ``left`` names the worker that never will."""

    id: int
    left: Member | None = None


class Leave(Struct, frozen=True, tag="leave"):
    """Goodbye. ``suspend``: stays connected, comes back with a new Register. ``failed``: an error ends it."""

    suspend: bool = False
    failed: bool = False
    reason: Text = ""


class Lost(Struct, frozen=True, tag="lost"):
    """A member is gone. From the scheduler a fact, from a member an accusation."""

    role: str
    rank: int
    host: Text
    reason: Text


class Departed(Struct, frozen=True, tag="departed"):
    """A worker said goodbye; the rounds that still need it will never be complete."""

    rank: int


class Retire(Struct, frozen=True, tag="retire"):
    """All workers use newer generations: free the keys of these tensors."""

    tensor_ids: list[int]


class Shutdown(Struct, frozen=True, tag="shutdown"):
    """All workers are done: exit with status 0."""


class Ask(Struct, frozen=True, tag="ask"):
    """Where does the job stand?"""

    id: int


class Presence(Struct, frozen=True):
    """One process that is connected, as the scheduler knows it."""

    role: Role
    rank: int  # -1: it has none yet
    host: Text
    address: Text
    port: Port
    pid: int
    version: Text  # of the package
    clock_ahead_s: float | None  # of the scheduler's, when it registered; late by one way of a message


class Status(Struct, frozen=True, tag="status"):
    """The answer: the scheduler itself, the job in one line, and everybody who is connected."""

    id: int
    host: Text
    version: Text
    clock_s: float
    phase: Text
    text: Text
    members: list[Presence]


# A typing.Union and not "|": msgspec reads the tags out of it at import.
Message = Union[  # noqa: UP007
    Register,
    View,
    Waiting,
    ComeBack,
    Failed,
    Declare,
    Declared,
    Conflict,
    Barrier,
    BarrierDone,
    Leave,
    Lost,
    Departed,
    Retire,
    Shutdown,
    Ask,
    Status,
]

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The payload of a CONTROL frame."""
    return _encoder.encode(message)


def decode(payload: bytes) -> Message:
    """The message in a CONTROL frame; ProtocolError says what is wrong with it."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"control message of {len(payload)} bytes does not decode: {error}") from error
