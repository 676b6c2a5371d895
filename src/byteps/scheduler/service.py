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
from dataclasses import replace

import msgspec

from byteps import _core
from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control import machine, starter
from byteps.control.address import peer_of, text_of
from byteps.control.channel import Channel
from byteps.control.connection import Acceptor, credentials_of
from byteps.control.handshake import TIMEOUT_S
from byteps.control.hello import Hello, job_name, job_number
from byteps.control.machines import piece_bytes
from byteps.control.messages import (
    Ask,
    AskClock,
    AskNumbers,
    Barrier,
    Declare,
    Departed,
    Dump,
    Failed,
    Lacking,
    Leave,
    Lost,
    Message,
    Numbers,
    Prepared,
    Register,
    Report,
    Status,
    ToldClock,
    Tracing,
    Unreachable,
    View,
    Waiting,
    Watched,
)
from byteps.control.patience import make_patient
from byteps.control.progress import REPEAT_S, Progress
from byteps.control.scheduler_channel import GRACE_S, Line, agreed_heartbeat, beat_reason
from byteps.errors import ProtocolError
from byteps.observe.limited import Limited
from byteps.observe.logging import logger
from byteps.scheduler import membership, observers, rivals, statement
from byteps.scheduler.dashboard import Dashboard
from byteps.scheduler.epoch import Effect, Epoch, Say
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
from byteps.scheduler.gathered import Gathered, Told
from byteps.scheduler.lobby import Lobby
from byteps.scheduler.observers import Question
from byteps.scheduler.placement import Placement
from byteps.scheduler.roster import Standing
from byteps.scheduler.shares import shares_of, why_not_by_speed

WATCHED_S = 10.0  # for which members tell their numbers after somebody has asked for them
DUMP_S = 5.0  # between two requests to all members for their last seconds
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
        self._dump_at = 0.0  # not before
        self._watched_until = 0.0  # members tell their numbers
        self._gathered = Gathered(config.metrics_port)
        self._dashboard: Dashboard | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

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
        self._serve_page()
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
            self._gathered.close()
            if self._dashboard is not None:
                self._dashboard.close()

    def _serve_page(self) -> None:
        config = self._config
        if not config.dashboard_port:
            return
        self._dashboard = Dashboard(config.dashboard_port, config.dashboard_token, self._look)
        if self._dashboard.is_served and not config.dashboard_token:
            where = joined(config.root_uri, config.dashboard_port)
            logger.warning("a page about this job: http://%s/?token=%s", where, self._dashboard.token)

    def _look(self) -> tuple[Status, Numbers]:
        """For the page, in the thread that serves it: what is read here is replaced, and never changed."""
        self._loop.call_soon_threadsafe(self._watch)
        now, text = time.monotonic(), membership.status(self._state)
        status = observers.status(0, self._state, text, dict(self._arrivals))
        return status, self._gathered.numbers(0, now, self._state, text)

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

    def _welcome(self, sock: socket.socket, hello: Hello, epoch: int, keys: _core.SessionKeys | None) -> None:
        make_patient(sock, self._config)
        if hello.channel == "beat":
            self._lobby.arrive(hello.instance, Line(sock, keys))
            return
        if hello.channel == observers.CHANNEL:
            answering = asyncio.ensure_future(
                observers.answer(sock, self._job, self._answer, self._lines, keys)
            )
            self._observers.add(answering)
            answering.add_done_callback(self._observers.discard)
            return
        rival = hello.channel == rivals.CHANNEL
        task = asyncio.ensure_future(
            self._hear_rival(sock, keys) if rival else self._serve(sock, hello, keys)
        )
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _serve(self, sock: socket.socket, hello: Hello, keys: _core.SessionKeys | None) -> None:
        """One member's control connection, from its handshake to its end."""
        seat = next(self._numbers)
        address = peer_of(sock)
        peer = f"the {hello.role} at {text_of(address)}"
        channel = await Channel.over(sock, self._job, peer, REGISTER_BYTES, keys)
        try:
            register = await asyncio.wait_for(channel.receive(), TIMEOUT_S)
            if not isinstance(register, Register) or register.role != hello.role:
                raise ProtocolError(f"{peer} did not register")
            lines = await self._lobby.fetch(hello.instance)
            channel.max_bytes = _core.MAX_CONTROL_BYTES
            self._channels[seat] = channel
            for line in lines:
                self._liveness.add(line.sock.detach(), seat, line.keys)
            self._arrivals[seat] = observers.arrival(hello, register, time.time(), channel.cipher)
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
            self._gathered.forget(seat)
            channel.close()

    async def _servers_have_room(self) -> None:
        """What one worker declares is told to all servers: it gets no further than they do."""
        for number, seat in list(self._state.seats.items()):
            channel = self._channels.get(number)
            if seat.register.role == "server" and channel is not None:
                await channel.room()

    async def _hear_rival(self, sock: socket.socket, keys: _core.SessionKeys | None) -> None:
        rival = await rivals.hear(sock, self._job, keys)
        if rival is not None:
            self._apply(Rivalled(rival))

    def _status(self, number: int) -> Status:
        return observers.status(
            number, self._state, membership.status(self._state), self._arrivals, self._config.encrypt
        )

    def _answer(self, question: Question, peer: str) -> Status | Numbers:
        """What an observer is told."""
        if isinstance(question, AskNumbers):
            return self._counted(question.id)
        if isinstance(question, Dump):
            self._dump(f"{peer}: {question.reason}")
        return self._status(question.id if isinstance(question, Ask) else 0)

    def _counted(self, number: int) -> Numbers:
        """For an observer; members go on telling theirs for a while."""
        self._watch()
        text = membership.status(self._state)
        return self._gathered.numbers(number, time.monotonic(), self._state, text)

    def _watch(self) -> None:
        """Somebody looks: members go on telling their numbers."""
        now = time.monotonic()
        if self._state.phase is Phase.RUNNING and now >= self._watched_until - WATCHED_S / 2:
            self._watched_until = now + WATCHED_S
            self._tell_members(Watched(WATCHED_S))

    def _drop_beat(self, seat: int) -> None:
        if seat in self._channels:
            self._liveness.remove(seat)

    def _beat_events(self) -> None:
        for event in self._liveness.events():
            channel = self._channels.get(event.number)
            if event.failure is None:
                self._apply(Heard(event.number))
            elif channel is not None:  # what it said before its end counts: cut only after that has been read
                reason = beat_reason(event.failure, event.text, self._config)
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
        elif isinstance(message, AskClock):
            self._send(seat, ToldClock(message.asked_ns, time.monotonic_ns(), machine.kernel()))
        elif isinstance(message, Tracing):
            self._tell_servers(message)
        elif isinstance(message, Report):
            told = Told(known.register.role, known.rank, time.monotonic(), message.samples)
            self._gathered.hear(seat, told, self._state)
        elif isinstance(message, Dump):
            self._dump(f"{known}: {message.reason}")
        elif isinstance(message, Register):
            self._apply(Registered(seat, instance, message))
        elif isinstance(message, Prepared):
            if known.register.role != "server" or known.standing is not Standing.ACTIVE:
                raise ProtocolError(f"Prepared from {known}, which is no server of this epoch")
            self._ask(known.rank, message)
        elif isinstance(message, (Declare, Lacking, Barrier)):
            if known.register.role != "worker" or known.standing is not Standing.ACTIVE:
                raise ProtocolError(
                    f"{type(message).__name__} from {known}, which is no worker of this epoch"
                )
            self._ask(known.rank, message)
        else:
            raise ProtocolError(f"{known} may not send {type(message).__name__}")

    def _dump(self, reason: str) -> None:
        """All members write their last seconds; not for every one of many that see the same."""
        now = time.monotonic()
        if now >= self._dump_at:
            self._dump_at = now + DUMP_S
            logger.warning("asked all members for their last seconds: %s", reason)
            self._tell_members(Dump(reason[:1_000]))

    def _ask(self, rank: int, message: Declare | Lacking | Barrier | Prepared) -> None:
        """A question to the running epoch."""
        running, now = self._running(), time.monotonic()
        if isinstance(message, Declare):
            effects = running.declare(now, rank, message)
        elif isinstance(message, Lacking):
            effects = running.lacking(rank, message)
        elif isinstance(message, Barrier):
            effects = running.barrier(rank, message)
        else:
            effects = running.prepared(rank, message)
        self._carry_out(effects)
        self._arm()

    def _running(self) -> Epoch:
        assert self._state.running is not None  # there is one once a member is in an epoch
        return self._state.running

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Say):
                if effect.about:
                    self._lines.log(effect.level, effect.about, effect.text, effect.text)
                else:
                    logger.log(effect.level, "%s", effect.text)
            elif effect.rank is not None:
                self._send(self._seat_of(effect.role, effect.rank), effect.message)
            elif effect.role == "server":
                self._tell_servers(effect.message)
            else:
                self._tell_workers(effect.message)

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
        self._tell_workers(message)

    def _tell_workers(self, message: Message) -> None:
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
            self._progress.close()
            self._progress = Progress(self._config.connect_timeout_s)
            logger.info("the job is complete: %s", reason)
        self._arm()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Send):
            refusing_all = self._state.phase in (Phase.REFUSING, Phase.ENDED)
            if isinstance(action.message, Failed) and not refusing_all:
                text = action.message.text
                self._lines.warning("refused members", text, f"refused: {text}")
            self._send(action.seat, self._timed(action.message))
        elif isinstance(action, Dismiss):
            channel = self._channels.get(action.seat)
            if channel is not None:
                channel.shut(FAREWELL_S)
        elif isinstance(action, ListenFor):
            self._liveness.listen_for(action.seat)
        elif isinstance(action, Departure):
            self._tell_members(Departed(action.rank, action.reason))
            self._send(action.seat, Departed(action.rank, action.reason))
            self._carry_out(self._running().depart(action.rank))
        elif isinstance(action, Formed):
            config, view = self._config, action.view
            shards = [server.shards for server in view.servers()]
            shares = shares_of(view, config.enable_mixed_mode)
            if len(set(shares)) > 1:
                logger.info("the servers hold %s", ", ".join(f"{float(s):.1%}" for s in shares))
            if why_not := why_not_by_speed(view, config.enable_mixed_mode):
                logger.warning("BYTEPS_LINK_SPEED is without effect: %s", why_not)
            hashing = config.key_hash_fn, config.built_in_hash_coef
            placement = Placement(shards, *hashing, shares, config.mixed_mode_bound, piece_bytes(view))
            before = self._state.running
            told = 0 if before is None else before.preparations.last
            running = Epoch(view, placement, action.partition_bytes, told)
            self._state = replace(self._state, running=running)
        elif not self._ended.done():
            self._ended.set_result(action)

    @staticmethod
    def _timed(message: Message) -> Message:
        """With the time of this machine, where a message has room for it."""
        if not isinstance(message, View):
            return message
        return msgspec.structs.replace(message, told_ns=time.monotonic_ns(), kernel=machine.kernel())

    # Time: a timer runs only while somebody waits for something

    def _arm(self) -> None:
        now = time.monotonic()
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
        waits = None if state.running is None else state.running.due_at(now)
        return min([*times, *([] if waits is None else [waits])], default=None)

    def _tick(self) -> None:
        self._timer = None
        self._say_who_is_missing(membership.awaited(self._state))
        if self._state.running is not None:
            self._carry_out(self._state.running.look(time.monotonic(), self._config.stall_warn_s))
        self._apply(Ticked())

    def _say_who_is_missing(self, text: str) -> None:
        if not text:
            self._progress.close()
            return
        self._progress.say(f"waiting for {text}")
        now = time.monotonic()
        if text != self._told or now - self._told_at >= REPEAT_S:
            self._told, self._told_at = text, now
            for number, seat in self._state.seats.items():
                if seat.standing is not Standing.ACTIVE:
                    self._send(number, Waiting(text))
