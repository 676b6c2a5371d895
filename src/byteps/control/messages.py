"""Every message of the control plane: msgpack of tagged structs, one per CONTROL frame.

Numbers that a peer sends and that later size a loop or a list are bounded here, so that a message that
decodes is also safe to work with. Unknown tags, missing fields and wrong types raise ProtocolError. A message
that has a ``Text``, which is for people, is ``Said`` and cleans it; a ``Name`` is compared as it is.

    member -> scheduler     Register  Declare  Lacking  Barrier  Leave  Tracing  Dump  Report
                            AskClock, answered with ToldClock
                            Lost (an accusation: "its connection ended")
                            Unreachable ("nothing comes through between it and me")
    scheduler -> member     Waiting  ComeBack  View  Declared  Conflict  BarrierDone  Departed  Failed  Lost
                            NamesDiffer  Dump  Watched
    scheduler -> servers    Prepare, answered with Prepared  Retire  Tracing  Shutdown
    scheduler -> scheduler  Rival: of one that found its port taken, on a connection of its own
    observer <-> scheduler  Ask and Dump, answered with a Status, and AskNumbers, answered with Numbers: on a
                            connection of its own, by whoever has the secret
"""

from __future__ import annotations

from typing import Annotated, Literal, Union

import msgspec
from msgspec import Meta, Struct

from byteps.control.blame import Whom
from byteps.control.said import Said, Text, TextTable, unpack
from byteps.control.sentences import member
from byteps.observe.metrics import MAX_SAMPLES, Sample

Role = Literal["worker", "server"]
Count = Annotated[int, Meta(ge=0, le=65_536)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Local = Annotated[int, Meta(ge=0, le=4_096)]
Rank = Annotated[int, Meta(ge=0, le=1 << 30)]
Extent = Annotated[int, Meta(ge=0, le=1 << 48)]
Times = Annotated[int, Meta(ge=1, le=1 << 20)]
Number = Annotated[int, Meta(ge=0, le=65_535)]  # of a server, or of a shard
Places = list[tuple[Times, list[tuple[Number, Number]]]]  # (server, shard); see byteps.tensor.runs
TensorId = Annotated[int, Meta(ge=-1, lt=1 << 32)]
Partition = Annotated[int, Meta(ge=8, le=1 << 30, multiple_of=8)]  # its bytes
Name = Annotated[str, Meta(max_length=4_096)]
BitsPerS = Annotated[int, Meta(ge=0, le=10**15)]
Time = Annotated[int, Meta(ge=0, le=1 << 62)]  # nanoseconds

# What one declaration may ask for: the scheduler must not be busy with it for long.
MAX_BATCH_TENSORS = 1_000
MAX_BATCH_PARTITIONS = 100_000  # unless it is one tensor


class Origin(Said, frozen=True):
    """Where a process comes from. Never its arguments: they may hold a password, and others log this."""

    incarnation: Annotated[int, Meta(ge=0, le=1 << 62)] = 0  # random, of the process; 0: it did not say
    launch: Text = ""  # the same in all processes that one launcher has started; none by hand
    program: Text = ""  # file name of a worker's script; none for servers, schedulers and prompts
    folder: Text = ""
    user: Text = ""
    age_s: float = 0.0  # since the process was started


class Machine(Said, frozen=True):
    """What tells machines apart (``control/machine.py``); empty where a process did not say it."""

    kernel: Text = ""
    network: Text = ""
    address: Text = ""
    up: BitsPerS = 0  # of its link, as told by BYTEPS_LINK_SPEED; 0: it did not say
    down: BitsPerS = 0


class Member(Said, frozen=True):
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
    incarnation: int = 0
    machine: Machine = Machine()

    def __str__(self) -> str:
        return member(self.role, self.rank, self.host)


class Register(Said, frozen=True, tag="register"):
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
    agreed: TextTable
    clock_s: float = 0.0  # its clock as it sends this, seconds since the epoch; 0: it did not say
    origin: Origin = Origin()
    machine: Machine = Machine()


class Rival(Said, frozen=True, tag="rival"):
    """A second scheduler was started for this address and this job id."""

    host: Text
    pid: int
    origin: Origin


class View(Said, frozen=True, tag="view"):
    """The job is complete: who is in it, and the receiver's own rank. ``size`` counts workers."""

    epoch: Rank
    rank: Rank
    size: Rank
    members: list[Member]
    told_ns: Time = 0  # by the clock of the scheduler's machine, since the boot of ``kernel``; 0: unknown
    kernel: Text = ""

    def workers(self) -> list[Member]:
        """All workers in rank order."""
        return [member for member in self.members if member.role == "worker"]

    def servers(self) -> list[Member]:
        """All servers in rank order."""
        return [member for member in self.members if member.role == "server"]


class Waiting(Said, frozen=True, tag="waiting"):
    """Why the receiver still has to wait, in words."""

    text: Text


class ComeBack(Said, frozen=True, tag="come-back"):
    """The receiver has no place now, and may have one soon: it shall try again until its deadline."""

    text: Text


class Failed(Said, frozen=True, tag="failed"):
    """Start-up failed or the job cannot go on; ``error`` is the name of the exception to raise."""

    text: Text
    error: Name = "JoinError"


class TensorSpec(Struct, frozen=True):
    """One tensor as a worker declares it; ``dtype`` is a number of the wire (float32 is 0).

    ``direct``: this rank pushes it to the servers itself, without the group of its machine. Then perhaps only
    some ranks declare it; those that do must agree.
    """

    name: Name
    generation: Rank
    dtype: int
    shape: Annotated[list[Extent], Meta(max_length=64)]
    codec: Name = ""
    direct: bool = False


class Placed(Said, frozen=True):
    """Where a declared tensor lives: a (server, shard) for every partition, none in a job without servers.

    They come as runs: places, and how often they repeat (see ``byteps.tensor.runs``).
    ``error`` set: it was refused; ``lack``: because a server has no memory for it.
    """

    tensor_id: TensorId
    placement: Places
    error: Text = ""
    lack: bool = False
    partition_bytes: Partition = 8


class Declare(Struct, frozen=True, tag="declare"):
    id: int
    tensors: Annotated[list[TensorSpec], Meta(max_length=MAX_BATCH_TENSORS)]


class Declared(Struct, frozen=True, tag="declared"):
    id: int
    tensors: list[Placed]


class Conflict(Said, frozen=True, tag="conflict"):
    """Ranks disagree on a tensor, or one lacks memory for it; goes to every worker that declared it."""

    name: Name
    generation: int
    text: Text
    tensor_id: TensorId
    lack: bool = False


class Lacking(Said, frozen=True, tag="lacking"):
    """A worker has no memory for what it has declared. The others must not wait for its contributions."""

    tensor_id: TensorId
    reason: Text


class Assigned(Struct, frozen=True):
    """A tensor as a server must know it to sum it; it holds the partitions that have their place there."""

    tensor_id: TensorId
    name: Name
    dtype: Annotated[int, Meta(ge=0, le=255)]
    nbytes: Extent
    codec: Name
    partition_bytes: Partition
    placement: Places


class Prepare(Struct, frozen=True, tag="prepare"):
    """These tensors will be pushed: no worker is told where they live before all servers are prepared."""

    id: int
    tensors: list[Assigned]


class Refusal(Said, frozen=True):
    """Why a server cannot hold a tensor; ``lack``: it has no memory for it."""

    tensor_id: TensorId
    reason: Text
    lack: bool = False


class Prepared(Struct, frozen=True, tag="prepared"):
    id: int
    refused: list[Refusal]


class Barrier(Struct, frozen=True, tag="barrier"):
    id: int


class BarrierDone(Struct, frozen=True, tag="barrier_done"):
    """Everybody came; or ``left`` names the worker that never will."""

    id: int
    left: Member | None = None


class Leave(Said, frozen=True, tag="leave"):
    """Goodbye. ``suspend``: stays connected, comes back with a new Register. ``failed``: an error ends it.

    ``because``: the loss of another member was that error.
    """

    suspend: bool = False
    failed: bool = False
    reason: Text = ""
    because: Lost | None = None


class Lost(Said, frozen=True, tag="lost"):
    """A member is gone. From the scheduler a fact, from a member an accusation.

    ``at_s``: the scheduler's clock, for the member itself, which may read this much later; 0: it did not say.
    ``unreached_by``: the member is well, and so is that one, but they cannot reach each other.
    """

    role: Text
    rank: Rank
    host: Text
    reason: Text
    pid: int = 0
    at_s: float = 0.0
    unreached_by: Whom | None = None


class Unreachable(Said, frozen=True, tag="unreachable"):
    """Nothing comes through between the sender and this member any more, and neither end has closed."""

    role: Role
    rank: Rank
    reason: Text


class NamesDiffer(Said, frozen=True, tag="names-differ"):
    """Only some ranks have declared these names; no text: all agree again. ``crossed``: not just slower."""

    text: Text
    crossed: bool = False


class Departed(Said, frozen=True, tag="departed"):
    """A worker said goodbye; the rounds that still need it will never be complete."""

    rank: Rank
    reason: Text = ""  # what it said: how far it had come


class Retire(Struct, frozen=True, tag="retire"):
    """All workers use newer generations: free the keys of these tensors."""

    tensor_ids: list[TensorId]


class Shutdown(Struct, frozen=True, tag="shutdown"):
    """All workers are done: exit with status 0."""


class AskClock(Struct, frozen=True, tag="ask-clock"):
    """What time is it at the scheduler's machine?"""

    asked_ns: Time


class ToldClock(Said, frozen=True, tag="told-clock"):
    """The time at the scheduler's machine, since the boot of ``kernel``, and that of the question."""

    asked_ns: Time
    now_ns: Time
    kernel: Text


class Tracing(Struct, frozen=True, tag="tracing"):
    """A worker has begun to trace, or has ended its trace; the scheduler passes it on to the servers."""

    begins: bool


class Report(Struct, frozen=True, tag="report"):
    """A member's numbers for the metrics of the job; at most one a second counts."""

    samples: Annotated[list[Sample], Meta(max_length=MAX_SAMPLES)]


class Watched(Struct, frozen=True, tag="watched"):
    """Somebody looks at the job: members tell their numbers for so long."""

    for_s: Annotated[float, Meta(ge=0, le=3_600)]


class AskNumbers(Struct, frozen=True, tag="ask-numbers"):
    """What do the members of the job count? Whoever goes on asking is told newer numbers."""

    id: int


class Counted(Said, frozen=True):
    """The numbers of one member, ``age_s`` old."""

    role: Text
    rank: int
    host: Text
    age_s: float
    samples: list[Sample]


class Numbers(Said, frozen=True, tag="numbers"):
    """The answer: the job in one line, and what its members have told so far."""

    id: int
    now_s: float  # of the scheduler's clock
    phase: Text
    text: Text
    members: list[Counted]


class Dump(Said, frozen=True, tag="dump"):
    """Every member shall write its last seconds to a file, because of this."""

    reason: Text


class Ask(Struct, frozen=True, tag="ask"):
    """Where does the job stand?"""

    id: int


class Presence(Said, frozen=True):
    """One process that is connected, as the scheduler knows it."""

    role: Role
    rank: int  # -1: it has none yet
    host: Text
    address: Text
    port: Port
    pid: int
    version: Text  # of the package
    clock_ahead_s: float | None  # of the scheduler's, when it registered; late by one way of a message
    cipher: Text = ""  # of its control connection; empty: not encrypted


class Status(Said, frozen=True, tag="status"):
    """The answer: the scheduler itself, the job in one line, and everybody who is connected."""

    id: int
    host: Text
    version: Text
    clock_s: float
    phase: Text
    text: Text
    members: list[Presence]
    encrypt: Text = "0"  # BYTEPS_ENCRYPT of the job


# A typing.Union and not "|": msgspec reads the tags out of it at import.
Message = Union[  # noqa: UP007
    Register,
    Rival,
    View,
    Waiting,
    ComeBack,
    Failed,
    Declare,
    Declared,
    Conflict,
    Lacking,
    Prepare,
    Prepared,
    Barrier,
    BarrierDone,
    Leave,
    Lost,
    Unreachable,
    NamesDiffer,
    Departed,
    Retire,
    Shutdown,
    AskClock,
    ToldClock,
    Tracing,
    Dump,
    Report,
    Watched,
    AskNumbers,
    Numbers,
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
    return unpack(_decoder, payload, "a control message")
