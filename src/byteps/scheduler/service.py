"""The scheduler process: sockets and timers around the pure decisions of this package.

One asyncio loop. Every control connection has a seat number and a task that reads it; everything that task
learns becomes an event of ``membership.step``, or a question to the epoch's declarations and barriers.
Heartbeats are native (``_core.Liveness``), so a member that holds its GIL for long is not taken for dead.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import socket
import time
from logging import INFO, WARNING

from byteps import _core
from byteps.config import Config
from byteps.control import starter
from byteps.control.address import peer_of, text_of
from byteps.control.channel import Channel
from byteps.control.connection import Acceptor, credentials_of
from byteps.control.handshake import TIMEOUT_S
from byteps.control.hello import Hello, job_name, job_number
from byteps.control.link import GRACE_S, REPEAT_S, Progress, agreed_heartbeat, beat_reason
from byteps.control.machines import piece_bytes
from byteps.control.messages import (
    Barrier,
    BarrierDone,
    Conflict,
    Declare,
    Declared,
    Departed,
    Failed,
    Lacking,
    Leave,
    Lost,
    Member,
    Message,
    NamesDiffer,
    Placed,
    Prepare,
    Prepared,
    Register,
    Retire,
    Status,
    Unreachable,
    Waiting,
)
from byteps.control.patience import make_patient
from byteps.errors import ProtocolError
from byteps.observe.limited import Limited
from byteps.observe.logging import logger
from byteps.scheduler import membership, names, observers, rivals, statement
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
    Heard,
    Left,
    ListenFor,
    Phase,
    Registered,
    Rivalled,
    Send,
    Stopped,
    Ticked,
    Unreached,
)
from byteps.scheduler.lobby import Lobby
from byteps.scheduler.placement import Placement
from byteps.scheduler.preparations import Preparations
from byteps.scheduler.roster import Standing
from byteps.scheduler.shares import shares_of

Answer = tuple[int, int, list[Placed]]  # to a Declare: seat, its number, places

FAREWELL_S = 2.0  # how long the last messages may take to be read
TICK_S = 1.0
REGISTER_BYTES = 1 << 18  # the longest message of a process that has not registered


class Scheduler:
    """One job. ``run`` returns how it ended."""

    def __init__(self, config: Config, listener: socket.socket) -> None:
        self._config = config
        self._job = job_number(config.job_id)
        self._listener = listener
        self._state = membership.begin(
            *(time.monotonic(), config.num_worker, config.num_server, config.connect_timeout_s),
            launch=config.launch_id,
            named=config.job_id != job_name(""),
            agreed=agreed_heartbeat(config),
        )
        self._numbers = itertools.count(1)
        self._channels: dict[int, Channel] = {}  # by seat
        self._readers: set[asyncio.Task[None]] = set()
        self._observers: set[asyncio.Task[None]] = set()
        self._arrivals: dict[int, observers.Arrival] = {}  # by seat
        self._lobby = Lobby()
        self._lines = Limited()  # that strangers and members can cause as often as they like
        self._progress = Progress(config.connect_timeout_s)
        self._told, self._told_at = "", 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._declarations: Declarations | None = None
        self._prepare_numbers = itertools.count(1)
        self._servers: list[Member] = []
        self._preparations: Preparations[Answer] = Preparations([])
        self._barriers = Barriers([])
        self._stalled_since: float | None = None
        self._pace = names.Pace()
        self._names_told = False

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
        credentials = credentials_of(config)
        acceptor = Acceptor(self._listener, credentials, self._admit, self._welcome, lines=self._lines)
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
        if hello.channel == rivals.CHANNEL:
            return rivals.refusal(hello)
        if hello.channel not in ("control", "beat"):
            return f"a {hello.channel!r} connection does not belong to the scheduler"
        return "" if hello.role in ("worker", "server") else f"role {hello.role!r} is unknown"

    def _welcome(self, sock: socket.socket, hello: Hello, epoch: int) -> None:
        make_patient(sock, self._config)
        if hello.channel == "beat":
            self._lobby.arrive(hello.instance, sock)
            return
        if hello.channel == observers.CHANNEL:
            answering = asyncio.ensure_future(observers.answer(sock, self._job, self._status, self._lines))
            self._observers.add(answering)
            answering.add_done_callback(self._observers.discard)
            return
        rival = hello.channel == rivals.CHANNEL
        task = asyncio.ensure_future(self._hear_rival(sock) if rival else self._serve(sock, hello))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _serve(self, sock: socket.socket, hello: Hello) -> None:
        """One member's control connection, from its handshake to its end."""
        seat = next(self._numbers)
        address = peer_of(sock)
        peer = f"the {hello.role} at {text_of(address)}"
        channel = await Channel.over(sock, self._job, peer, REGISTER_BYTES)
        try:
            register = await asyncio.wait_for(channel.receive(), TIMEOUT_S)
            if not isinstance(register, Register) or register.role != hello.role:
                raise ProtocolError(f"{peer} did not register")
            lines = await self._lobby.fetch(hello.instance)
            channel.max_bytes = _core.MAX_CONTROL_BYTES
            self._channels[seat] = channel
            for line in lines:
                self._liveness.add(line.detach(), seat)
            self._arrivals[seat] = observers.arrival(hello, register, time.time())
            self._apply(Registered(seat, hello.instance, register))
            while True:
                message = await channel.receive()
                self._handle(seat, message, hello.instance)
                await channel.room()
                if isinstance(message, Declare):
                    await self._servers_have_room()
        except asyncio.TimeoutError:
            text = f"closed the connection of {peer}: it did not register in time"
            self._lines.warning(address[0], "register", text)
        except (OSError, ProtocolError) as error:
            if seat not in self._state.seats and isinstance(error, ProtocolError):
                self._lines.warning(address[0], str(error), f"closed the connection of {peer}: {error}")
            self._apply(Closed(seat, str(error), time.time()))
        except Exception as error:  # ours: better a loud end than a job that hangs
            if not self._ended.done():
                self._ended.set_exception(error)
        finally:
            self._drop_beat(seat)
            self._channels.pop(seat, None)
            self._arrivals.pop(seat, None)
            channel.close()

    async def _servers_have_room(self) -> None:
        """What one worker declares is told to all servers: it gets no further than they do."""
        for number, seat in list(self._state.seats.items()):
            channel = self._channels.get(number)
            if seat.register.role == "server" and channel is not None:
                await channel.room()

    async def _hear_rival(self, sock: socket.socket) -> None:
        rival = await rivals.hear(sock, self._job)
        if rival is not None:
            self._apply(Rivalled(rival))

    def _status(self, number: int) -> Status:
        return observers.status(number, self._state, membership.status(self._state), self._arrivals)

    def _drop_beat(self, seat: int) -> None:
        if seat in self._channels:
            self._liveness.remove(seat)

    def _beat_events(self) -> None:
        for kind, seat, detail in self._liveness.events():
            channel = self._channels.get(seat)
            if kind == "heard":
                self._apply(Heard(seat))
            elif channel is not None:  # what it said before its end counts: cut only after that has been read
                reason = beat_reason(kind, detail, self._config)
                self._loop.call_later(GRACE_S, channel.give_up, reason)

    # Messages

    def _handle(self, seat: int, message: Message, instance: int) -> None:
        known = self._state.seats.get(seat)
        if known is None:
            return  # it was dismissed and has not noticed yet
        if isinstance(message, Leave):
            self._apply(Left(seat, message.suspend, message.failed, message.reason, message.because))
        elif isinstance(message, Lost):
            self._apply(Accused(seat, message.role, message.rank, message.reason))
        elif isinstance(message, Unreachable):
            self._apply(Unreached(seat, message.role, message.rank, message.reason))
        elif isinstance(message, Register):
            self._apply(Registered(seat, instance, message))
        elif isinstance(message, Prepared):
            if known.register.role != "server" or known.standing is not Standing.ACTIVE:
                raise ProtocolError(f"Prepared from {known}, which is no server of this epoch")
            self._prepared(known.rank, message)
        elif isinstance(message, (Declare, Lacking, Barrier)):
            if known.register.role != "worker" or known.standing is not Standing.ACTIVE:
                raise ProtocolError(
                    f"{type(message).__name__} from {known}, which is no worker of this epoch"
                )
            if isinstance(message, Declare):
                self._declare(known.rank, seat, message)
            elif isinstance(message, Lacking):
                self._lacking(known.rank, message)
            else:
                self._answer(self._barriers.arrive(known.rank, message.id))
                self._arm()
        else:
            raise ProtocolError(f"{known} may not send {type(message).__name__}")

    def _declare(self, rank: int, seat: int, message: Declare) -> None:
        assert self._declarations is not None  # there is one for every epoch
        outcome = self._declarations.declare(rank, message.tensors, time.monotonic())
        self._tell_conflicts(rank, outcome.conflicts)
        if outcome.retired:
            self._tell_servers(Retire(outcome.retired))
        if outcome.new:
            number = self._preparations.tell()
            self._tell_servers(Prepare(number, outcome.new))
        self._answer_declarations(self._preparations.answer((seat, message.id, outcome.placed)))
        if self._names_told and self._declarations.partial_since() is None:
            self._tell_names(names.Difference())
        self._arm()

    def _lacking(self, rank: int, message: Lacking) -> None:
        assert self._declarations is not None
        self._tell_conflicts(rank, self._declarations.lack(rank, message.tensor_id, message.reason))

    def _tell_conflicts(self, rank: int, conflicts: list[tuple[int, Conflict]]) -> None:
        for other, conflict in conflicts:
            self._send(self._seat_of("worker", other), conflict)
        for text in {conflict.text for _, conflict in conflicts}:
            self._lines.log(logging.ERROR, f"declarations of worker {rank}", text, text)

    def _prepared(self, rank: int, message: Prepared) -> None:
        assert self._declarations is not None
        for refusal in message.refused:
            why = f"{self._servers[rank]} cannot hold it: {refusal.reason}"
            text = self._declarations.refuse(refusal.tensor_id, why, refusal.lack)
            if text:
                self._lines.log(logging.ERROR, f"refusals of server {rank}", text, text)
                self._tell_servers(Retire([refusal.tensor_id]))  # those that could have held it
        self._answer_declarations(self._preparations.confirm(rank, message.id))
        self._arm()

    def _answer_declarations(self, answers: list[Answer]) -> None:
        assert self._declarations is not None
        for seat, number, placed in answers:
            self._send(seat, Declared(number, self._declarations.settled(placed)))

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
            if isinstance(action, End):  # before anybody hears of it who would end because of it
                statement.tell(self._config, action)
        for action in actions:
            self._perform(action)
        seat = self._state.seats.get(event.seat) if isinstance(event, Registered) else None
        awaited = membership.awaited(self._state)
        if seat is not None and seat.standing is Standing.WAITING and awaited:
            self._send(seat.number, Waiting(awaited))
        if before is not Phase.REFUSING and self._state.phase is Phase.REFUSING:
            logger.error("refusing everybody: %s", reason)
        if before is Phase.FORMING and self._state.phase is Phase.RUNNING:
            self._progress = Progress(self._config.connect_timeout_s)
            logger.info("the job is complete: %s", reason)
        self._arm()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Send):
            refusing_all = self._state.phase in (Phase.REFUSING, Phase.ENDED)
            if isinstance(action.message, Failed) and not refusing_all:
                text = action.message.text
                self._lines.warning("refused members", text, f"refused: {text}")
            self._send(action.seat, action.message)
        elif isinstance(action, Dismiss):
            channel = self._channels.get(action.seat)
            if channel is not None:
                channel.shut(FAREWELL_S)
        elif isinstance(action, ListenFor):
            self._liveness.listen_for(action.seat)
        elif isinstance(action, Departure):
            self._tell_members(Departed(action.rank))
            self._send(action.seat, Departed(action.rank))
            self._answer(self._barriers.depart(action.rank))
            if self._declarations is not None:
                self._declarations.depart()
            if self._names_told:  # from now on it is the departure that operations fail of
                self._tell_names(names.Difference())
        elif isinstance(action, Formed):
            config, view = self._config, action.view
            shards = [server.shards for server in view.servers()]
            shares = shares_of(view, config.enable_mixed_mode)
            if len(set(shares)) > 1:
                logger.info("mixed mode: the servers hold %s", ", ".join(f"{float(s):.1%}" for s in shares))
            hashing = config.key_hash_fn, config.built_in_hash_coef
            placement = Placement(shards, *hashing, shares, config.mixed_mode_bound, piece_bytes(view))
            self._declarations = Declarations(view.workers(), placement, action.partition_bytes)
            self._servers = view.servers()
            self._preparations = Preparations(self._servers, self._prepare_numbers)
            self._barriers = Barriers(view.workers())
            self._pace, self._names_told = names.Pace(), False
        elif not self._ended.done():
            self._ended.set_result(action)

    # Time: a timer runs only while somebody waits for something

    def _arm(self) -> None:
        now = time.monotonic()
        if not (self._barriers.missing() or self._preparations.missing()):
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = now
        due = self._due(now)
        if due is None or self._ended.done() or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_later(max(0.0, due - now), self._tick), due

    def _due(self, now: float) -> float | None:
        """When to look again at what somebody waits for; None when nobody waits."""
        times = []
        state = self._state
        if membership.awaited(state) or state.phase is Phase.REFUSING:
            times.append(min(now + TICK_S, state.settled_at or state.deadline or now + TICK_S))
        if self._stalled_since is not None:
            times.append(now + TICK_S)
        since = None if self._declarations is None else self._declarations.partial_since()
        if since is not None:
            times.append(self._pace.due_at(*since))
        return min(times, default=None)

    def _tick(self) -> None:
        self._timer = None
        self._say_who_is_missing(membership.awaited(self._state))
        self._say_who_holds_up_others()
        self._say_which_names_differ()
        self._apply(Ticked())

    def _say_who_is_missing(self, text: str) -> None:
        if not text:
            return
        self._progress.say(f"waiting for {text}")
        now = time.monotonic()
        if text != self._told or now - self._told_at >= REPEAT_S:
            self._told, self._told_at = text, now
            for number, seat in self._state.seats.items():
                if seat.standing is not Standing.ACTIVE:
                    self._send(number, Waiting(text))

    def _say_who_holds_up_others(self) -> None:
        now = time.monotonic()
        if self._stalled_since is not None and now - self._stalled_since >= self._config.stall_warn_s:
            self._stalled_since = now
            for rank in self._barriers.waiting():
                self._send(self._seat_of("worker", rank), Waiting(self._barriers.missing()))
            for seat in {seat for seat, _, _ in self._preparations.waiting()}:
                self._send(seat, Waiting(self._preparations.missing()))

    def _say_which_names_differ(self) -> None:
        now, declarations = time.monotonic(), self._declarations
        since = None if declarations is None else declarations.partial_since()
        if declarations is None or since is None or now < self._pace.due_at(*since):
            return
        found = names.difference(now, declarations.partials(), self._state.size, self._barriers.waiting())
        if self._pace.is_news(now, found):
            self._tell_names(found)

    def _tell_names(self, difference: names.Difference) -> None:
        self._names_told = bool(difference.text)
        if difference.text:
            logger.log(WARNING if difference.crossed else INFO, "%s", difference.text)
        for seat in self._state.seats.values():
            if seat.register.role == "worker" and seat.standing is Standing.ACTIVE:
                self._send(seat.number, NamesDiffer(difference.text, difference.crossed))
