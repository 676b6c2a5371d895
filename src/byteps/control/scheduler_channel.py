"""A member's connections with the scheduler: how they are made, watched and ended. Workers and servers alike.

Start order does not matter: the scheduler may come later, so connecting is tried again until the deadline.
The heartbeat connections are opened before the process registers, so a member is watched from its first
moment on and a hung one is noticed while the job forms, too.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from byteps import _core
from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control import machine, origin
from byteps.control.channel import Channel
from byteps.control.clock import Clock
from byteps.control.connection import credentials_of, open_socket, protection, why
from byteps.control.handshake import ClientHandshake
from byteps.control.hello import job_number
from byteps.control.messages import (
    AskClock,
    ComeBack,
    Failed,
    Leave,
    Message,
    Register,
    ToldClock,
    View,
    Waiting,
)
from byteps.control.patience import make_patient
from byteps.control.progress import Progress
from byteps.control.shortage import is_shortage
from byteps.errors import JoinError, JoinTimeoutError, ProtocolError
from byteps.observe.logging import logger
from byteps.observe.text import clean

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
LOCAL_RETRY_S = 0.2  # at last, in a job on one machine: cheap there, and its scheduler is always on its way
BEAT_LINES = 2  # heartbeat connections of a member: native/liveness/beat_lines.h says why
_VIEW_NS = 2_000_000  # a View is on its way for about so long at most: nobody has asked for it
GRACE_S = 0.5  # between the end of a heartbeat and the verdict: messages that have arrived are read first


class Line(NamedTuple):
    """A heartbeat connection, and its keys if it is encrypted."""

    sock: socket.socket
    keys: _core.SessionKeys | None


class SchedulerChannel(Channel):
    """A member's channel to the scheduler, and the heartbeat that cuts it when the scheduler is silent."""

    _config: Config
    _liveness: _core.Liveness | None = None
    own_address = ""  # of this machine, towards the scheduler
    clock: Clock

    def watch(self, config: Config, beats: list[Line]) -> None:
        """Begin to beat on these connections; once."""
        self._config = config
        self.clock = Clock(machine.kernel())
        self._liveness = _core.Liveness(
            job_number(config.job_id), config.heartbeat_interval_s, config.heartbeat_timeout_s
        )
        # Open ones: a forked child must let go of them.
        self.fds = [self.fileno(), *(beat.sock.fileno() for beat in beats)]
        self.own_address = str(beats[0].sock.getsockname()[0])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._liveness.fileno(), self._beat_events)
        for beat in beats:
            self._liveness.add(beat.sock.detach(), 0, beat.keys)

    async def receive(self) -> Message:
        """The next message; what the scheduler says of its clock is heard here."""
        while True:
            message = await super().receive()
            if isinstance(message, View) and message.told_ns:
                self.clock.hear(
                    time.monotonic_ns() - _VIEW_NS, message.told_ns, time.monotonic_ns(), message.kernel
                )
            elif isinstance(message, ToldClock):
                self.clock.hear(message.asked_ns, message.now_ns, time.monotonic_ns(), message.kernel)
                continue
            return message

    def ask_clock(self) -> None:
        """Find out more exactly how far the clocks are apart."""
        self.send(AskClock(time.monotonic_ns()))

    def leave(self, message: Leave, timeout_s: float) -> None:
        """Say goodbye. ``receive`` raises when the scheduler has heard it, or after ``timeout_s``.

        Only then may our other connections close: a server must know that we left before it sees the end
        of our data connection.
        """
        self.send(message)
        self.shut(timeout_s)

    def close(self) -> None:
        """Close at once; fine to call twice."""
        self.fds = []
        super().close()
        liveness, self._liveness = self._liveness, None
        if liveness is not None:
            self._loop.remove_reader(liveness.fileno())
            liveness.close()

    def _beat_events(self) -> None:
        for event in self._liveness.events() if self._liveness is not None else []:
            if event.failure is None:
                continue
            del self.fds[1:]  # the native side has closed them, and the numbers may be somebody else's soon
            reason = beat_reason(event.failure, event.text, self._config)
            self._loop.call_later(GRACE_S, self.cut, reason)


def beat_reason(kind: _core.FailureKind, detail: str, config: Config) -> str:
    """A failure of the heartbeat in words."""
    if kind is _core.FailureKind.SILENT:
        timeout_s, interval_s = config.heartbeat_timeout_s, config.heartbeat_interval_s
        return (
            f"no heartbeat came for {detail} s; the limit is PS_HEARTBEAT_TIMEOUT = {timeout_s:g} and one "
            f"PS_HEARTBEAT_INTERVAL of {interval_s:g}: it hangs, its machine is down, or the network is cut"
        )
    if kind is _core.FailureKind.LOST:
        more = "" if detail.startswith("connection closed") else f": {clean(detail)}"
        return f"its connection closed{more}"
    return f"its heartbeat connection broke: {clean(detail)}"


async def connect(config: Config, role: str, instance: int) -> SchedulerChannel:
    """One attempt to open all connections; OSError may go away with time, HandshakeError will not."""
    credentials = credentials_of(config)

    async def open_one(channel: str) -> Line:
        handshake = ClientHandshake(
            *(credentials.job_id, credentials.secret, channel, role),
            instance=instance,
            sealing=credentials.sealing,
        )
        sock = await open_socket(config.root_uri, config.root_port, handshake)
        if channel == "control" and handshake.keys is not None:
            logger.info("the connections with the scheduler are %s", protection(handshake))
        return Line(make_patient(sock, config), handshake.keys)

    opened: list[Line] = []
    try:
        for channel in ("control", *["beat"] * BEAT_LINES):
            opened.append(await open_one(channel))
    except BaseException:
        for line in opened:
            line.sock.close()
        raise
    scheduler = f"the scheduler at {joined(config.root_uri, config.root_port)}"
    control, *beats = opened
    made = await SchedulerChannel.over(control.sock, job_number(config.job_id), scheduler, keys=control.keys)
    made.watch(config, beats)
    return made


class _NotNow(Exception):
    """The scheduler has no place for this member yet."""


async def enter(
    config: Config, role: str, register: Callable[[str], Register], deadline: float
) -> tuple[SchedulerChannel, View]:
    """Connect, register and wait until the job is complete, whatever starts first.

    ``register`` gets this machine's address towards the scheduler, which is not known before.
    JoinTimeoutError after the deadline says what was still missing; JoinError what was refused.
    """
    progress = Progress(config.connect_timeout_s)
    try:
        return await _enter(config, role, register, deadline, progress)
    finally:
        progress.close()


async def _enter(
    config: Config, role: str, register: Callable[[str], Register], deadline: float, progress: Progress
) -> tuple[SchedulerChannel, View]:
    instance = secrets.randbits(62)  # only this member has this number
    delay = FIRST_RETRY_S
    where = f"the scheduler at {joined(config.root_uri, config.root_port)}"
    if config.serverless and config.local_rank != 0:
        where += ", which rank 0 starts in init(),"
    while True:
        channel = None
        try:
            left = deadline - time.monotonic()
            channel = await asyncio.wait_for(connect(config, role, instance), max(left, 0.001))
            view = await _wait_for_view(channel, register(channel.own_address), deadline, progress.say)
            return channel, view
        except asyncio.TimeoutError:
            pass  # the deadline: falls through to the check below
        except _NotNow as busy:
            progress.say(f"waiting for a place in the job: {busy}")
        except (OSError, ProtocolError) as error:
            if is_shortage(error):  # of our own: waiting for the scheduler does not mend it
                if channel is not None:
                    channel.close()
                raise
            reason = why(error) if isinstance(error, OSError) else str(error)
            progress.say(f"{where} cannot be reached yet: {reason}")
        except BaseException:
            if channel is not None:
                channel.send(Leave(failed=True, reason="it was stopped while the job started"))
                channel.close()
            raise
        if channel is not None:
            channel.close()
        if time.monotonic() + delay >= deadline:
            raise JoinTimeoutError(
                f"this {role} could not join the job within {config.connect_timeout_s:g} s "
                f"(BYTEPS_CONNECT_TIMEOUT_S): {progress.text or where + ' did not answer'}; check that the "
                "scheduler runs there (DMLC_PS_ROOT_URI, DMLC_PS_ROOT_PORT) and that all members were started"
            )
        await asyncio.sleep(delay)
        delay = min(2 * delay, LOCAL_RETRY_S if config.serverless else LAST_RETRY_S)


async def _wait_for_view(
    channel: SchedulerChannel, register: Register, deadline: float, say: Callable[[str], None]
) -> View:
    """Register, and wait until the epoch runs."""
    channel.send(register)
    while True:
        message = await asyncio.wait_for(channel.receive(), max(deadline - time.monotonic(), 0.001))
        if isinstance(message, View):
            return message
        if isinstance(message, Waiting):
            say(f"waiting for the job to be complete: {message.text}")
        elif isinstance(message, ComeBack):
            raise _NotNow(message.text)
        elif isinstance(message, Failed):
            raise (JoinTimeoutError if message.error == "JoinTimeoutError" else JoinError)(message.text)


def agreed_heartbeat(config: Config) -> dict[str, str]:
    """What all members and the scheduler must have alike: each knows when the others would give it up."""
    return {
        "PS_HEARTBEAT_INTERVAL": f"{config.heartbeat_interval_s:g}",
        "PS_HEARTBEAT_TIMEOUT": f"{config.heartbeat_timeout_s:g}",
    }


def registration(
    config: Config, role: str, own_address: str, *, address: str = "", port: int = 0, shards: int = 0
) -> Register:
    """What this process says about itself. Servers need not know how workers cut their tensors.

    ``own_address`` is the one towards the scheduler, ``address`` the one for others if that is another.
    """
    agreed = {
        "protocol version": str(_core.PROTOCOL_VERSION),
        "BYTEPS_ENABLE_ASYNC": str(int(config.enable_async)),
        "BYTEPS_ENABLE_IPC": str(int(config.enable_ipc)),
        **agreed_heartbeat(config),
    }
    if role == "worker":
        agreed["BYTEPS_PARTITION_BYTES"] = str(config.partition_bytes)
    return Register(
        role="worker" if role == "worker" else "server",
        worker_id=(config.worker_id or 0) if role == "worker" else 0,
        local_rank=config.local_rank if role == "worker" else 0,
        local_size=config.local_size if role == "worker" else 1,
        global_rank=config.global_rank if role == "worker" else None,
        num_workers=config.num_worker,
        num_servers=config.num_server,
        host=socket.gethostname(),
        address=address or own_address,
        port=port,
        shards=shards,
        pid=os.getpid(),
        agreed=agreed,
        clock_s=time.time(),
        origin=origin.own(config, role),
        machine=machine.own(own_address, config.link_speed),
    )
