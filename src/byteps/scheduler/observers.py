"""What the scheduler tells those who look at a job from outside, such as ``bps doctor``.

An observer opens a connection of its own kind, with the same handshake as a member and so with the same
secret. It is no member: it has no rank, nobody waits for it, and nobody notices when it goes.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from byteps._version import __version__
from byteps.control.address import text_of
from byteps.control.channel import Channel
from byteps.control.hello import Hello
from byteps.control.messages import Ask, Presence, Register, Status
from byteps.errors import ProtocolError
from byteps.scheduler.events import State

__all__ = ["CHANNEL", "ROLE", "Arrival", "answer", "arrival", "refusal", "status"]

CHANNEL = "status"
ROLE = "observer"
MAX_OBSERVERS = 64
IDLE_S = 30.0  # an observer that asks nothing for so long has been forgotten


@dataclass(frozen=True)
class Arrival:
    """What is known of a process since it registered."""

    version: str
    clock_ahead_s: float | None


def arrival(hello: Hello, register: Register, now_s: float) -> Arrival:
    """What to remember of a process that has just registered; ``now_s`` is our own clock."""
    return Arrival(hello.package_version[:100], register.clock_s - now_s if register.clock_s else None)


def refusal(hello: Hello, present: int) -> str:
    """Why this one may not look, or nothing."""
    if hello.role != ROLE:
        return f"a {CHANNEL!r} connection is for role {ROLE!r}, not {hello.role!r}"
    return "" if present < MAX_OBSERVERS else f"{MAX_OBSERVERS} observers are there already; try again later"


def status(number: int, state: State, text: str, arrivals: Mapping[int, Arrival]) -> Status:
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
            )
        )
    members.sort(key=lambda member: (member.role, member.rank, member.host, member.pid))
    host = socket.gethostname()
    return Status(number, host, __version__, time.time(), state.phase.value, text[:4_000], members)


async def answer(sock: socket.socket, job: int, status_of: Callable[[int], Status]) -> None:
    """Answer one observer until it closes the connection."""
    peer = f"the observer at {text_of(sock.getpeername())}"
    channel = await Channel.over(sock, job, peer)
    try:
        while True:
            message = await asyncio.wait_for(channel.receive(), IDLE_S)
            if not isinstance(message, Ask):
                raise ProtocolError(f"{peer} sent {type(message).__name__}")
            channel.send(status_of(message.id))
    except (OSError, ProtocolError, asyncio.TimeoutError):
        pass  # it has gone, or makes no sense: nobody depends on it
    finally:
        channel.close()
