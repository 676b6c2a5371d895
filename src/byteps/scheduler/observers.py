"""What the scheduler tells those who look at a job from outside, such as ``bps doctor``.

An observer opens a connection of its own kind, with the same handshake as a member and so with the same
secret. It is no member: it has no rank, nobody waits for it, and nobody notices when it goes. Nor must
anybody notice that it is there: its answers have a pace, and one that does not read them is dropped.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Union

from byteps import _core
from byteps.control.address import peer_of, text_of
from byteps.control.channel import Channel
from byteps.control.hello import Hello
from byteps.control.messages import Ask, AskNumbers, Dump, Numbers, Presence, Register, Status
from byteps.errors import ProtocolError
from byteps.observe.limited import Limited
from byteps.scheduler.events import State
from byteps.version import __version__

__all__ = ["CHANNEL", "ROLE", "Arrival", "Pace", "Question", "answer", "arrival", "refusal", "status"]

Question = Union[Ask, AskNumbers, Dump]  # noqa: UP007 - made at run time, also by Python 3.10

CHANNEL = "status"
ROLE = "observer"
MAX_OBSERVERS = 64
IDLE_S = 30.0  # an observer that asks nothing for so long has been forgotten
UNREAD_S = 5.0  # one that does not read its answers for so long is dropped
ASK_BYTES = 1 << 10  # the longest question
BURST, PER_S = 20, 20.0  # answers to one observer: at once, and in a second after that


@dataclass(frozen=True)
class Arrival:
    """What is known of a process since it registered."""

    version: str
    clock_ahead_s: float | None
    cipher: str = ""  # of its control connection; empty: not encrypted


def arrival(hello: Hello, register: Register, now_s: float, cipher: str = "") -> Arrival:
    """What to remember of a process that has just registered; ``now_s`` is our own clock."""
    ahead_s = register.clock_s - now_s if register.clock_s else None
    return Arrival(hello.package_version[:100], ahead_s, cipher)


def refusal(hello: Hello, present: int) -> str:
    """Why this one may not look, or nothing."""
    if hello.role != ROLE:
        return f"a {CHANNEL!r} connection is for role {ROLE!r}, not {hello.role!r}"
    return "" if present < MAX_OBSERVERS else f"{MAX_OBSERVERS} observers are there already; try again later"


def status(
    number: int, state: State, text: str, arrivals: Mapping[int, Arrival], encrypt: str = "0"
) -> Status:
    """The answer to a question; apart from the clock and the host's name a function of its arguments."""
    unknown = Arrival("", None)
    members = []
    for seat in state.seats.values():
        said, known = seat.register, arrivals.get(seat.number, unknown)
        members.append(
            Presence(
                role=said.role,
                rank=seat.rank,
                host=said.host,
                address=said.address,
                port=said.port,
                pid=said.pid,
                version=known.version,
                clock_ahead_s=known.clock_ahead_s,
                cipher=known.cipher,
            )
        )
    members.sort(key=lambda member: (member.role, member.rank, member.host, member.pid))
    host = socket.gethostname()
    line = text[:4_000]
    return Status(number, host, __version__, time.time(), state.phase.value, line, members, encrypt)


class Pace:
    """How long an answer has to wait, so that one who asks without a pause takes no time from the members.

    >>> pace = Pace(0.0)
    >>> [pace.wait_s(0.0) for _ in range(BURST + 1)][-2:]
    [0.0, 0.05]
    """

    def __init__(self, now: float) -> None:
        self._free_at = now - BURST / PER_S  # each answer takes 1 / PER_S of a time that must not run ahead

    def wait_s(self, now: float) -> float:
        self._free_at = max(self._free_at, now - BURST / PER_S) + 1 / PER_S
        return round(max(0.0, self._free_at - now), 6)


async def answer(
    sock: socket.socket,
    job: int,
    answer_to: Callable[[Question, str], Status | Numbers],
    lines: Limited,
    keys: _core.SessionKeys | None = None,
) -> None:
    """Answer one observer until it closes the connection."""
    address = peer_of(sock)
    peer = f"the observer at {text_of(address)}"
    channel = await Channel.over(sock, job, peer, ASK_BYTES, keys)
    pace = Pace(time.monotonic())
    try:
        while not channel.has_ended:
            message = await asyncio.wait_for(channel.receive(), IDLE_S)
            if not isinstance(message, (Ask, AskNumbers, Dump)):
                raise ProtocolError(f"{peer} sent {type(message).__name__}")
            await asyncio.sleep(pace.wait_s(time.monotonic()))
            channel.send(answer_to(message, peer))
            await _read(channel)
    except (OSError, asyncio.TimeoutError):
        pass  # it has gone: nobody depends on it
    except ProtocolError as error:
        lines.warning(address[0], str(error), f"closed the connection of {peer}: {error}")
    finally:
        channel.close()


async def _read(channel: Channel) -> None:
    try:
        await asyncio.wait_for(channel.room(), UNREAD_S)
    except asyncio.TimeoutError:
        raise ProtocolError(f"it has not read its answers for {UNREAD_S:g} s") from None
