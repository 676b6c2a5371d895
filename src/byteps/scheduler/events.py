"""The vocabulary of membership, data only: the state, events that change it, actions that follow."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from byteps.control.messages import Lost, Message, Register, Rival, View
from byteps.scheduler.epoch import Epoch
from byteps.scheduler.roster import Expected, Seat


class Phase(enum.Enum):
    FORMING = "forming"
    RUNNING = "running"
    REFUSING = "refusing"
    ENDED = "ended"


@dataclass(frozen=True)
class Gone:
    """A worker that has left in peace, and what it said."""

    seat: Seat
    words: str


@dataclass(frozen=True)
class Cut:
    """Two members, by seat, between which nothing comes through, as the first one says."""

    accuser: int
    accused: int
    reason: str


@dataclass(frozen=True)
class State:
    """Everything that the scheduler knows. ``epoch`` is the last one that ran, 0 before the first.

    ``launch`` and ``named``: the launch id that all members have, and whether BYTEPS_JOB_ID was set.
    """

    expected: Expected  # of the first epoch; later ones ask the first worker that comes back
    timeout_s: float
    deadline: float | None
    launch: str = ""
    named: bool = True
    phase: Phase = Phase.FORMING
    epoch: int = 0
    size: int = 0  # workers of that epoch when it began
    crew: dict[tuple[int, int], int] = field(default_factory=dict)  # their incarnations, by place
    formed_at: float = 0.0
    settled_at: float | None = None  # everybody is there: when the epoch begins, if nobody else comes
    seats: dict[int, Seat] = field(default_factory=dict)
    departed: dict[int, Gone] = field(default_factory=dict)  # of this epoch, by rank
    note: str = ""  # the last thing that went wrong while forming: it explains who is missing
    ending: str = ""
    agreed: Mapping[str, str] = field(default_factory=dict)  # settings of the scheduler that all must share
    cuts: tuple[Cut, ...] = ()  # of which it is not yet known that the accused reaches the scheduler
    running: Epoch | None = None  # what members of the last epoch have declared, and where they wait


# Events


@dataclass(frozen=True)
class Registered:
    seat: int
    instance: int
    register: Register


@dataclass(frozen=True)
class Rivalled:
    """A second scheduler could not listen here, and says so."""

    rival: Rival


@dataclass(frozen=True)
class Left:
    """The process said goodbye. ``because``: of whom it has lost."""

    seat: int
    suspend: bool = False
    failed: bool = False
    reason: str = ""
    because: Lost | None = None


@dataclass(frozen=True)
class Closed:
    """The connection ended, or the heartbeat did, without a goodbye. ``at_s``: the time of day, if known."""

    seat: int
    reason: str
    at_s: float = 0.0


@dataclass(frozen=True)
class Accused:
    """A member cannot reach another one any more."""

    seat: int
    role: str
    rank: int
    reason: str


@dataclass(frozen=True)
class Unreached:
    """A member cannot reach another one, and nobody has closed their connection."""

    seat: int
    role: str
    rank: int
    reason: str


@dataclass(frozen=True)
class Heard:
    """A member that was listened for has given a sign of life."""

    seat: int


@dataclass(frozen=True)
class Stopped:
    """The scheduler itself was told to end (SIGTERM, Ctrl-C)."""

    code: int
    host: str
    reason: str


@dataclass(frozen=True)
class Ticked:
    """Time has passed."""


# Actions


@dataclass(frozen=True)
class Send:
    seat: int
    message: Message


@dataclass(frozen=True)
class Dismiss:
    """Close the connection politely, after what was sent before."""

    seat: int


@dataclass(frozen=True)
class ListenFor:
    """Tell when the next sign of life of this member has come."""

    seat: int


@dataclass(frozen=True)
class Formed:
    """A new epoch runs: its declarations and barriers are new (``State.running``)."""

    view: View
    partition_bytes: int


@dataclass(frozen=True)
class Departure:
    """A worker has left the running epoch: tell it, the others, and whoever waits for it at a barrier."""

    seat: int
    rank: int
    reason: str = ""


@dataclass(frozen=True)
class End:
    """The job is over; ``error`` names the exception that describes it, empty when all is well.

    ``lost``: the member that is the reason.
    """

    code: int
    text: str
    error: str = ""
    lost: Lost | None = None


Event = Union[  # noqa: UP007
    Registered, Rivalled, Left, Closed, Accused, Unreached, Heard, Stopped, Ticked
]
Action = Union[Send, Dismiss, ListenFor, Formed, Departure, End]  # noqa: UP007
Actions = tuple[Action, ...]
Step = tuple[State, Actions]
