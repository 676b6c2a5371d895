"""What the scheduler of a running job tells an observer, and what it means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control.channel import Channel
from byteps.control.connection import credentials_to_look, open_socket, why
from byteps.control.handshake import ClientHandshake
from byteps.control.hello import job_number
from byteps.control.messages import Ask, Presence, Status
from byteps.errors import HandshakeError, ProtocolError
from byteps.scheduler.observers import CHANNEL, ROLE
from byteps.tools.doctor.findings import Finding, fail, ok, warn
from byteps.version import __version__

__all__ = ["Answer", "ask", "judge"]

QUESTIONS = 5  # the quickest answer tells most about the clock
WORTH_SAYING_S = 0.5  # of difference between clocks
_ALL_S = 20.0


@dataclass(frozen=True)
class Answer:
    """The last status, the round trip, and by how much our clock is ahead of the scheduler's."""

    status: Status | None = None
    round_trip_s: float = 0.0
    clock_ahead_s: float = 0.0
    refusal: str = ""  # by the handshake
    error: str = ""
    reached: bool = True  # something accepted the connection
    nobody: bool = False  # the machine answered that nobody listens


def ask(config: Config, host: str, port: int) -> Answer:
    """Ask the scheduler at this address; bounded, never raises for what the other end does."""
    try:
        return asyncio.run(asyncio.wait_for(_ask(config, host, port), _ALL_S))
    except HandshakeError as error:
        return Answer(refusal=str(error))
    except asyncio.TimeoutError:
        return Answer(error=f"no answer within {_ALL_S:g} s")
    except ConnectionRefusedError as error:
        return Answer(error=why(error), reached=False, nobody=True)
    except ProtocolError as error:
        return Answer(error=str(error))
    except OSError as error:  # connected and then silent is told by its words
        return Answer(error=why(error), reached="connected" in str(error))


async def _ask(config: Config, host: str, port: int) -> Answer:
    ours = credentials_to_look(config)
    handshake = ClientHandshake(ours.job_id, ours.secret, CHANNEL, ROLE, sealing=ours.sealing)
    sock = await open_socket(host, port, handshake)
    scheduler = f"the scheduler at {joined(host, port)}"
    channel = await Channel.over(sock, job_number(config.job_id), scheduler, keys=handshake.keys)
    best = Answer(round_trip_s=float("inf"))
    try:
        for number in range(QUESTIONS):
            began, at = time.perf_counter(), time.time()
            channel.send(Ask(number))
            status = await channel.receive()
            trip = time.perf_counter() - began
            if not isinstance(status, Status) or status.id != number:
                raise ProtocolError("the scheduler's answer does not fit")
            if trip < best.round_trip_s:  # the answer was made in the middle of the trip, more or less
                best = Answer(status, trip, at + trip / 2 - status.clock_s)
    finally:
        channel.close()
    return best


def judge(answer: Answer, where: str) -> list[Finding]:
    """What the answer of the scheduler at ``where`` (host:port) means."""
    if not answer.reached:
        return [_unreached(answer, where)]
    if answer.refusal:
        return [
            fail(
                "scheduler",
                answer.refusal,
                "use the same byteps, BYTEPS_JOB_ID and BYTEPS_JOB_SECRET as the job; bpslaunch makes a "
                "secret for a job that it starts as a whole: set your own before, to look at such a job",
            )
        ]
    if answer.status is None:
        return [
            fail(
                "scheduler",
                f"something listens at {where}, but it does not answer as a scheduler: {answer.error}",
                "check DMLC_PS_ROOT_PORT: another program may have the port (`ss -ltnp` on that machine)",
            )
        ]
    status = answer.status
    return [
        ok("scheduler", f"on {status.host}, answers after {answer.round_trip_s * 1e3:.2f} ms"),
        *_state(status),
        *_versions(status),
        *_encryption(status),
        *_clocks(status, answer.clock_ahead_s),
    ]


def _unreached(answer: Answer, where: str) -> Finding:
    if answer.nobody:
        return fail(
            "scheduler",
            f"nobody listens at {where}: {answer.error}",
            "start the scheduler there first (DMLC_ROLE=scheduler bpslaunch), or check DMLC_PS_ROOT_PORT; "
            "a job that has ended has no scheduler any more",
        )
    return fail(
        "scheduler",
        f"no way to {where}: {answer.error}",
        "a firewall or security group drops packets, or the machine is off: try `nc -vz HOST PORT` there and "
        "here, and open the port (and DMLC_PORT of the servers)",
    )


def _state(status: Status) -> Iterator[Finding]:
    check = "job"
    if status.phase == "forming":
        here = ", ".join(sorted({_name(member) for member in status.members})) or "nobody"
        yield warn(
            check,
            f"waits for members: {status.text}; connected: {here}",
            "start the missing ones, or look at their output: each says what it waits for",
        )
    else:
        yield ok(check, status.text)


def _versions(status: Status) -> Iterator[Finding]:
    check = "versions"
    by_version: dict[str, list[str]] = {}
    for name, version in [("scheduler", status.version), ("here", __version__)]:
        by_version.setdefault(version, []).append(name)
    for member in status.members:
        by_version.setdefault(member.version, []).append(_name(member))
    if len(by_version) == 1:
        yield ok(check, f"byteps {status.version} everywhere")
    else:
        listed = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(by_version.items()))
        yield warn(
            check,
            f"byteps differs: {listed}",
            "install one version everywhere: pip install byteps-train==...",
        )


def _encryption(status: Status) -> Iterator[Finding]:
    """Who is on the scheduler's machine has nothing on a wire, unless all connections are encrypted."""
    check = "encryption"
    if status.encrypt == "0":
        yield ok(check, "off: gradients and weights travel in the clear (BYTEPS_ENCRYPT=1 encrypts them)")
        return
    sealed = sorted({member.cipher for member in status.members if member.cipher})
    plain = [_name(member) for member in status.members if not member.cipher]
    count = len(status.members) - len(plain)
    text = (
        f"BYTEPS_ENCRYPT={status.encrypt}: {count} of {len(status.members)} control connections are encrypted"
    )
    text += f" ({', '.join(sealed)})" if sealed else ""
    if plain:
        text += f"; on the scheduler's machine, and so in the clear: {', '.join(sorted(plain))}"
    yield ok(check, text)


def _clocks(status: Status, own_ahead_s: float) -> Iterator[Finding]:
    check = "clocks"
    ahead = {"here": own_ahead_s}
    ahead |= {_name(each): each.clock_ahead_s for each in status.members if each.clock_ahead_s is not None}
    far = {name: value for name, value in ahead.items() if abs(value) > WORTH_SAYING_S}
    if far:
        listed = ", ".join(f"{name} {value:+.1f} s" for name, value in sorted(far.items()))
        yield warn(
            check,
            f"not like the scheduler's: {listed}; nothing fails, but times in logs cannot be compared",
            "let chrony or systemd-timesyncd set the clocks of these machines",
        )
    else:
        widest = max(map(abs, ahead.values()))
        yield ok(
            check, f"within {max(widest, 0.001) * 1e3:.0f} ms of the scheduler's ({len(ahead)} compared)"
        )


def _name(member: Presence) -> str:
    number = f" {member.rank}" if member.rank >= 0 else ""
    return f"{member.role}{number} ({member.host})"
