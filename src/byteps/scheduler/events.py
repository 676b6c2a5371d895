"""The vocabulary of membership, data only: the state, events that change it, actions that follow."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Union

from byteps.control.messages import Message, Register, View
from byteps.scheduler.roster import Expected, Seat


class Phase(enum.Enum):
    FORMING = "forming"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class State:
    """Everything known about members. ``epoch`` is the last one that ran, 0 before the first."""

    expected: Expected  # of the first epoch; later ones ask the first worker that comes back
    timeout_s: float
    deadline: float | None
    phase: Phase = Phase.FORMING
    epoch: int = 0
    size: int = 0  # workers of that epoch when it began
    seats: dict[int, Seat] = field(default_factory=dict)
    note: str = ""  # the last thing that went wrong while forming: it explains who is missing
    ending: str = ""


# Events


@dataclass(frozen=True)
class Registered:
    seat: int
    instance: int
    register: Register


@dataclass(frozen=True)
class Left:
    """The process said goodbye."""

    seat: int
    suspend: bool = False
    failed: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Closed:
    """The connection ended, or the heartbeat did, without a goodbye."""

    seat: int
    reason: str


@dataclass(frozen=True)
class Accused:
    """A member cannot reach another one any more."""

    seat: int
    role: str
    rank: int
    reason: str


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
class Formed:
    """A new epoch runs: forget the declarations and barriers of the old one."""

    view: View
    partition_bytes: int


@dataclass(frozen=True)
class Departure:
    """A worker has left the running epoch: tell it, the others, and whoever waits for it at a barrier."""

    seat: int
    rank: int


@dataclass(frozen=True)
class End:
    """The job is over; ``error`` names the exception that describes it, empty when all is well."""

    code: int
    text: str
    error: str = ""


Event = Union[Registered, Left, Closed, Accused, Stopped, Ticked]  # noqa: UP007
Action = Union[Send, Dismiss, Formed, Departure, End]  # noqa: UP007
Actions = tuple[Action, ...]
Step = tuple[State, Actions]
