"""The scheduler process: sockets and timers around the pure decisions of this package.

One asyncio loop. Every control connection has a seat number and a task that reads it; everything that task
learns becomes an event of ``membership.step``, or a question to the epoch's declarations and barriers.
Heartbeats are native (``_core.Liveness``), so a member that holds its GIL for long is not taken for dead.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import time

from byteps import _core
from byteps.config import Config
from byteps.control import starter
from byteps.control.address import text_of
from byteps.control.channel import Channel
from byteps.control.connection import Acceptor, credentials_of
from byteps.control.handshake import TIMEOUT_S
from byteps.control.hello import Hello, job_number
from byteps.control.link import GRACE_S, REPEAT_S, Progress, beat_reason
from byteps.control.messages import (
    Barrier,
    BarrierDone,
    Declare,
    Declared,
    Departed,
    Failed,
    Leave,
    Lost,
    Message,
    Register,
    Retire,
    Status,
    Waiting,
)
from byteps.errors import ProtocolError
from byteps.observe.logging import logger
from byteps.scheduler import membership, observers
from byteps.scheduler.barriers import Barriers
from byteps.scheduler.declarations import Declarations
from byteps.scheduler.events import (
    Accused,
    Action,
    Closed,
    Departure,
    Dismiss,
    End,
    Event,
    Formed,
    Left,
    Phase,
    Registered,
    Send,
    Stopped,
    Ticked,
)
from byteps.scheduler.lobby import Lobby
from byteps.scheduler.placement import Placement
from byteps.scheduler.roster import Standing
from byteps.scheduler.shares import shares_of

FAREWELL_S = 2.0  # how long the last messages may take to be read
TICK_S = 1.0


class Scheduler:
    """One job. ``run`` returns how it ended."""

    def __init__(self, config: Config, listener: socket.socket) -> None:
        self._config = config
        self._job = job_number(config.job_id)
        self._listener = listener
        self._state = membership.begin(
            time.monotonic(), config.num_worker, config.num_server, config.connect_timeout_s
        )
        self._numbers = itertools.count(1)
        self._channels: dict[int, Channel] = {}  # by seat
        self._readers: set[asyncio.Task[None]] = set()
        self._observers: set[asyncio.Task[None]] = set()
        self._arrivals: dict[int, observers.Arrival] = {}  # by seat
        self._lobby = Lobby()
        self._progress = Progress()
        self._told, self._told_at = "", 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._declarations: Declarations | None = None
        self._barriers = Barriers([])
        self._stalled_since: float | None = None

    async def run(self) -> End:
        """Serve the job until it is over and its last messages have been read, or were not for 2 s."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[End] = self._loop.create_future()
        config = self._config
        self._liveness = _core.Liveness(self._job, config.heartbeat_interval_s, config.heartbeat_timeout_s)
        self._loop.add_reader(self._liveness.fileno(), self._beat_events)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, number)
        starter.watch(config.starter_fd, self._abandoned)
        acceptor = Acceptor(self._listener, credentials_of(config), self._admit, self._welcome)
        accepting = asyncio.ensure_future(acceptor.run())
        self._arm()
        try:
            return await asyncio.shield(self._ended)
        finally:
            accepting.cancel()
            for task in self._observers:
                task.cancel()
            if self._readers:
                await asyncio.wait(self._readers, timeout=FAREWELL_S)
            self._loop.remove_reader(self._liveness.fileno())
            self._liveness.close()

    def _stop(self, number: int) -> None:
        host = self._config.root_uri
        self._apply(Stopped(128 + number, host, f"it got {signal.Signals(number).name}"))

    def _abandoned(self) -> None:
        """The rank that started us is gone. Once the job runs, membership says what that means."""
        if self._state.phase is Phase.FORMING and self._state.epoch == 0:
            reason = "the rank that started it ended before the job was complete"
            self._apply(Stopped(1, self._config.root_uri, reason))

    # Connections

    def _admit(self, hello: Hello, epoch: int) -> str:
        if hello.channel == observers.CHANNEL:
            return observers.refusal(hello, len(self._observers))
        if hello.channel not in ("control", "beat"):
            return f"a {hello.channel!r} connection does not belong to the scheduler"
        return "" if hello.role in ("worker", "server") else f"role {hello.role!r} is unknown"

    def _welcome(self, sock: socket.socket, hello: Hello, epoch: int) -> None:
        if hello.channel == "beat":
            self._lobby.arrive(hello.instance, sock)
            return
        if hello.channel == observers.CHANNEL:
            answering = asyncio.ensure_future(observers.answer(sock, self._job, self._status))
            self._observers.add(answering)
            answering.add_done_callback(self._observers.discard)
            return
        task = asyncio.ensure_future(self._serve(sock, hello))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _serve(self, sock: socket.socket, hello: Hello) -> None:
        """One member's control connection, from its handshake to its end."""
        seat = next(self._numbers)
        peer = f"the {hello.role} at {text_of(sock.getpeername())}"
        channel = await Channel.over(sock, self._job, peer)
        try:
            register = await asyncio.wait_for(channel.receive(), TIMEOUT_S)
            if not isinstance(register, Register) or register.role != hello.role:
                raise ProtocolError(f"{peer} did not register")
            beat = await self._lobby.fetch(hello.instance)
            self._channels[seat] = channel
            self._liveness.add(beat.detach(), seat)
            self._arrivals[seat] = observers.arrival(hello, register, time.time())
            self._apply(Registered(seat, hello.instance, register))
            while True:
                self._handle(seat, await channel.receive(), hello.instance)
        except asyncio.TimeoutError:
            logger.warning("closed the connection of %s: it did not register in time", peer)
        except (OSError, ProtocolError) as error:
            self._apply(Closed(seat, str(error)))
        except Exception as error:  # ours: better a loud end than a job that hangs
            if not self._ended.done():
                self._ended.set_exception(error)
        finally:
            self._drop_beat(seat)
            self._channels.pop(seat, None)
            self._arrivals.pop(seat, None)
            channel.close()

    def _status(self, number: int) -> Status:
        return observers.status(number, self._state, membership.status(self._state), self._arrivals)

    def _drop_beat(self, seat: int) -> None:
        if seat in self._channels:
            self._liveness.remove(seat)

    def _beat_events(self) -> None:
        for kind, seat, detail in self._liveness.events():
            channel = self._channels.get(seat)
            if channel is not None:  # what it said before its end counts: cut only after that has been read
                reason = beat_reason(kind, detail, self._config.heartbeat_timeout_s)
                self._loop.call_later(GRACE_S, channel.cut, reason)

    # Messages

    def _handle(self, seat: int, message: Message, instance: int) -> None:
        known = self._state.seats.get(seat)
        if known is None:
            return  # it was dismissed and has not noticed yet
        if isinstance(message, Leave):
            self._apply(Left(seat, message.suspend, message.failed, message.reason))
        elif isinstance(message, Lost):
            self._apply(Accused(seat, message.role, message.rank, message.reason))
        elif isinstance(message, Register):
            self._apply(Registered(seat, instance, message))
        elif isinstance(message, (Declare, Barrier)):
            if known.register.role != "worker" or known.standing is not Standing.ACTIVE:
                raise ProtocolError(
                    f"{type(message).__name__} from {known}, which is no worker of this epoch"
                )
            if isinstance(message, Declare):
                self._declare(known.rank, seat, message)
            else:
                self._answer(self._barriers.arrive(known.rank, message.id))
                self._arm()
        else:
            raise ProtocolError(f"{known} may not send {type(message).__name__}")

    def _declare(self, rank: int, seat: int, message: Declare) -> None:
        assert self._declarations is not None  # there is one for every epoch
        outcome = self._declarations.declare(rank, message.tensors)
        for other, conflict in outcome.conflicts:
            self._send(self._seat_of("worker", other), conflict)
        for text in {conflict.text for _, conflict in outcome.conflicts}:
            logger.error("%s", text)
        self._send(seat, Declared(message.id, outcome.placed))
        if outcome.retired:
            self._tell_servers(Retire(outcome.retired))

    def _answer(self, answers: list[tuple[int, BarrierDone]]) -> None:
        for rank, done in answers:
            self._send(self._seat_of("worker", rank), done)

    def _seat_of(self, role: str, rank: int) -> int:
        for number, seat in self._state.seats.items():
            if (seat.register.role, seat.rank, seat.standing) == (role, rank, Standing.ACTIVE):
                return number
        return 0

    def _tell_servers(self, message: Message) -> None:
        for number, seat in self._state.seats.items():
            if seat.register.role == "server":
                self._send(number, message)

    def _tell_members(self, message: Message) -> None:
        """The servers, and the workers that are still in the epoch."""
        self._tell_servers(message)
        for number, seat in self._state.seats.items():
            if seat.register.role == "worker" and seat.standing is Standing.ACTIVE:
                self._send(number, message)

    def _send(self, seat: int, message: Message) -> None:
        channel = self._channels.get(seat)
        if channel is not None:
            channel.send(message)

    # Decisions

    def _apply(self, event: Event) -> None:
        before = self._state.phase
        self._state, actions, reason = membership.step(time.monotonic(), self._state, event)
        for action in actions:
            self._perform(action)
        if isinstance(event, Registered) and self._state.phase is Phase.FORMING:
            self._send(event.seat, Waiting(reason))
        if before is Phase.FORMING and self._state.phase is Phase.RUNNING:
            self._progress = Progress()
            logger.info("the job is complete: %s", reason)
        self._arm()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Send):
            if isinstance(action.message, Failed) and self._state.phase is not Phase.ENDED:
                logger.warning("refused: %s", action.message.text)
            self._send(action.seat, action.message)
        elif isinstance(action, Dismiss):
            channel = self._channels.get(action.seat)
            if channel is not None:
                channel.shut(FAREWELL_S)
        elif isinstance(action, Departure):
            self._tell_members(Departed(action.rank))
            self._send(action.seat, Departed(action.rank))
            self._answer(self._barriers.depart(action.rank))
        elif isinstance(action, Formed):
            config, view = self._config, action.view
            shards = [server.shards for server in view.servers()]
            shares = shares_of(view, config.enable_mixed_mode)
            if len(set(shares)) > 1:
                logger.info("mixed mode: the servers hold %s", ", ".join(f"{float(s):.1%}" for s in shares))
            placement = Placement(
                shards, config.key_hash_fn, config.built_in_hash_coef, shares, config.mixed_mode_bound
            )
            self._declarations = Declarations(view.workers(), placement, action.partition_bytes)
            self._barriers = Barriers(view.workers())
        elif not self._ended.done():
            self._ended.set_result(action)

    # Time: a timer runs only while somebody waits for something

    def _arm(self) -> None:
        now = time.monotonic()
        if not self._barriers.waiting():
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = now
        waits = self._state.phase is Phase.FORMING or self._stalled_since is not None
        if self._timer is None and waits and not self._ended.done():
            deadline = self._state.deadline or now + TICK_S
            self._timer = self._loop.call_later(max(0.0, min(TICK_S, deadline - now)), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._state.phase is Phase.FORMING:
            self._say_who_is_missing(membership.status(self._state))
        self._say_who_holds_up_a_barrier()
        self._apply(Ticked())

    def _say_who_is_missing(self, text: str) -> None:
        self._progress.say(f"waiting for {text}")
        now = time.monotonic()
        if text != self._told or now - self._told_at >= REPEAT_S:
            self._told, self._told_at = text, now
            for number in self._state.seats:
                self._send(number, Waiting(text))

    def _say_who_holds_up_a_barrier(self) -> None:
        now = time.monotonic()
        if self._stalled_since is not None and now - self._stalled_since >= self._config.stall_warn_s:
            self._stalled_since = now
            for rank in self._barriers.waiting():
                self._send(self._seat_of("worker", rank), Waiting(self._barriers.missing()))
