"""The server process: registers, lets workers in, and hands their connections to the native aggregator.

One asyncio loop. A new epoch is given to the aggregator, which begins anew. Whether a worker whose connection
ended is lost or has merely left is the scheduler's to say; one that lives connects again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from byteps import _core
from byteps.compress.declared import codec_of_tensor
from byteps.config import Config
from byteps.control import blame, starter, tasks
from byteps.control.address import (
    bind_host,
    is_loopback,
    listen,
    own_address,
    peer_of,
    text_of,
    wants_checksum,
)
from byteps.control.blame import Whom
from byteps.control.connection import Acceptor, credentials_of, why
from byteps.control.handshake import no_probe
from byteps.control.hello import Hello, job_number
from byteps.control.loss import loss, told
from byteps.control.machines import epoch_of, piece_bytes
from byteps.control.memory import return_probe
from byteps.control.messages import (
    Assigned,
    Departed,
    Dump,
    Failed,
    Leave,
    Lost,
    Message,
    Prepare,
    Prepared,
    Refusal,
    Register,
    Report,
    Retire,
    Shutdown,
    Tracing,
    View,
    Watched,
)
from byteps.control.patience import make_patient
from byteps.control.scheduler_channel import SchedulerChannel, enter, registration
from byteps.errors import BytePSError, JoinError, OutOfMemoryError, ProtocolError
from byteps.observe import metrics
from byteps.observe.flight import FlightRecorder
from byteps.observe.limited import Limited
from byteps.observe.logging import log_native, logger, set_identity, warn_once
from byteps.observe.metrics import Sample
from byteps.observe.recorder import Self
from byteps.observe.reporter import Reporter, Watching
from byteps.observe.text import clean
from byteps.server.connections import Connections
from byteps.server.tracing import ServerTrace

# How long to wait for the reason when a worker's data connection ends: the worker says goodbye to the
# scheduler before it closes, but the scheduler's word may reach us after the end of the connection.
VERDICT_S = 1.0
FAREWELL_S = 1.0
MAX_EARLY = 4_096  # connections of an epoch whose View has not come yet


class _Early(NamedTuple):
    """A connection that waits for its epoch; ``pid`` is the worker's process if it may be read."""

    sock: socket.socket
    pid: int
    keys: _core.SessionKeys | None


class Server:
    """One server of a job. ``run`` returns when the job is over."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._job = job_number(config.job_id)
        self._shards = min(config.server_engine_thread, len(os.sched_getaffinity(0)))
        self._lines = Limited()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._channel: SchedulerChannel | None = None
        self._view: View | None = None
        self._aggregator: _core.Aggregator | None = None
        # By (epoch, rank, shard).
        self._early: dict[tuple[int, int, int], _Early] = {}
        self._connections = Connections()  # of this epoch
        self._departed: set[int] = set()
        self._accused: set[int] = set()
        self._exhausted = ""  # why this server cannot go on
        self._names: dict[int, str] = {}  # of tensors, for those who observe
        self._trace = ServerTrace(config)
        self._flight = FlightRecorder(config, self._self)
        self._reporter: Reporter | None = None
        self._watching: Watching | None = None

    async def run(self) -> None:
        """Serve until the scheduler says that all workers are done. Raises an error of ``byteps.errors``."""
        loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._serve())
        stopped: asyncio.Future[int] = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _set, stopped, number)
        loop.add_signal_handler(signal.SIGUSR2, self._flight.write_soon, "this process got SIGUSR2")
        abandoned: asyncio.Future[int] = loop.create_future()
        # A View that is on its way counts: then the scheduler says when the job is over.
        starter.watch(self._config.starter_fd, lambda: loop.call_later(VERDICT_S, self._abandon, abandoned))
        try:
            ends: set[asyncio.Future[Any]] = {serving, stopped, abandoned}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if abandoned.done() and not serving.done():
                raise JoinError("the rank that started this server ended before the job was complete")
            if stopped.done() and not serving.done():
                name = signal.Signals(stopped.result()).name
                if self._channel is not None:  # the others learn the reason, and serving ends when they have
                    self._channel.leave(Leave(failed=True, reason=f"it got {name}"), FAREWELL_S)
                    await asyncio.wait({serving}, timeout=FAREWELL_S)
                raise Interrupted(stopped.result(), f"stopped by {name}")
            serving.result()
        finally:
            await tasks.end(serving)
            self._close()

    def _abandon(self, abandoned: asyncio.Future[int]) -> None:
        if self._view is None:
            _set(abandoned, 1)

    async def _serve(self) -> None:
        deadline = time.monotonic() + self._config.connect_timeout_s
        self._channel, view = await enter(self._config, "server", self._register, deadline)
        self._begin(view)
        while True:
            try:
                message = await self._channel.receive()
            except (OSError, ProtocolError) as error:
                raise loss(Whom("scheduler", 0, self._config.root_uri), str(error)) from None
            if isinstance(message, Shutdown):
                return
            self._handle(message)

    def _handle(self, message: Message) -> None:
        if isinstance(message, View):
            self._begin(message)
        elif isinstance(message, Departed):
            self._departed.add(message.rank)
            if self._aggregator is not None:
                self._aggregator.depart(message.rank)
            if self._view is not None and len(self._departed) == self._view.size:
                self._end_epoch()  # they may come back much later; until then nobody needs the memory
        elif isinstance(message, Prepare):
            self._prepare(message)
        elif isinstance(message, Retire):
            if self._aggregator is not None:
                self._aggregator.retire(message.tensor_ids)
        elif isinstance(message, Watched):
            if self._watching is not None and self._reporter is None:
                self._watching.watch(message.for_s)
        elif isinstance(message, Dump):
            self._flight.write_soon(message.reason)
        elif isinstance(message, Tracing):
            if self._channel is not None:
                self._channel.ask_clock()
            self._trace.hear(message.begins, self._self())
        elif isinstance(message, Lost):
            self._flight.write(f"{message.role} {message.rank} is lost: {message.reason}", final=True)
            if self._exhausted:
                raise OutOfMemoryError(self._exhausted)
            raise told(message, "server", -1 if self._view is None else self._view.rank)
        elif isinstance(message, Failed):
            raise JoinError(message.text)

    def _prepare(self, message: Prepare) -> None:
        """Take tensors in, before the scheduler tells any worker that their parts live here."""
        if self._view is None or self._aggregator is None or self._channel is None:
            raise ProtocolError("the scheduler has placed tensors on this server before any worker has come")
        self._names.update((each.tensor_id, each.name) for each in message.tensors)
        refused = [self._refusal(each) for each in message.tensors]
        self._channel.send(Prepared(message.id, [each for each in refused if each is not None]))

    def _refusal(self, tensor: Assigned) -> Refusal | None:
        """Why this server cannot hold its parts of a tensor; None: it can."""
        assert self._view is not None and self._aggregator is not None
        own = self._view.rank
        shards = [
            (times, [shard if server == own else -1 for server, shard in places])
            for times, places in tensor.placement
        ]
        try:
            codec = codec_of_tensor(tensor.codec, tensor.dtype, tensor.nbytes, self._config.job_id)
            self._aggregator.declare(
                tensor.tensor_id,
                tensor.name,
                tensor.dtype,
                tensor.nbytes,
                tensor.partition_bytes,
                piece_bytes(self._view),
                shards,
                codec,
            )
        except MemoryError as error:
            advice = "give the servers more memory, or start more of them (DMLC_NUM_SERVER)"
            return Refusal(tensor.tensor_id, f"{error}; {advice}", lack=True)
        except ValueError as error:
            plugins = "; a codec of your own must be registered by a module in BYTEPS_PLUGINS of servers, too"
            return Refusal(tensor.tensor_id, f"{error}{plugins if tensor.codec else ''}")
        return None

    def _self(self) -> Self:
        """Who this is, for what it records."""
        rank = -1 if self._view is None else self._view.rank
        return Self("server", rank, 0, 0, lambda: self._names, self._clock)

    def _clock(self) -> tuple[int, int]:
        offset = None if self._channel is None else self._channel.clock.offset
        return (0, 0) if offset is None else (offset.ns, offset.error_ns)

    # Start-up

    def _register(self, towards_scheduler: str) -> Register:
        config = self._config
        address = own_address(config.node_host, config.interface, towards_scheduler)
        if self._listener is None:
            host = bind_host(address, config.interface)
            self._listener = listen(host, config.server_ports, "DMLC_PORT")
            if config.job_secret is None and not is_loopback(host):
                warn_once(
                    "no job secret is set, so anybody who reaches this server can push; set BYTEPS_JOB_SECRET"
                )
            probe = return_probe if config.enable_ipc and config.encrypt != "all" else no_probe
            credentials = credentials_of(config)
            acceptor = Acceptor(self._listener, credentials, self._admit, self._welcome, probe, self._lines)
            self._accepting = asyncio.ensure_future(acceptor.run())
        port = self._listener.getsockname()[1]
        return registration(
            config, "server", towards_scheduler, address=address, port=port, shards=self._shards
        )

    # Workers

    def _admit(self, hello: Hello, epoch: int) -> str:
        if hello.channel != "data" or hello.role != "worker":
            return f"a {hello.channel!r} connection of a {hello.role!r} does not belong to a server"
        if not 0 <= hello.shard < self._shards or not 0 <= hello.rank < 65_536:
            return f"worker {hello.rank} asks for shard {hello.shard}, this server has {self._shards}"
        current = 0 if self._view is None else self._view.epoch
        if not current <= epoch <= current + 1:
            return f"worker {hello.rank} comes from epoch {epoch}, the job is in epoch {current}"
        if epoch == current and self._view is not None:
            if hello.rank >= self._view.size:
                return f"there is no worker {hello.rank} in this job of {self._view.size}"
            if hello.rank in self._departed:
                return f"worker {hello.rank} has left"
            # It may know of the end of the connection that it has before we do.
            if (hello.rank, hello.shard) in self._connections and not self._config.recovery:
                return f"worker {hello.rank} is already connected to shard {hello.shard}"
        elif (epoch, hello.rank, hello.shard) in self._early or len(self._early) >= MAX_EARLY:
            return (
                f"worker {hello.rank} comes to shard {hello.shard} before its epoch, and its place is taken"
            )
        return ""

    def _welcome(self, sock: socket.socket, hello: Hello, epoch: int, keys: _core.SessionKeys | None) -> None:
        make_patient(sock, self._config)
        # A worker may hear of the epoch before this server does: its connection waits here.
        self._early[epoch, hello.rank, hello.shard] = _Early(sock, 0 if keys else hello.memory.pid, keys)
        self._attach_early()

    def _begin(self, view: View) -> None:
        config = self._config
        self._end_epoch()
        self._view = view
        set_identity("server", view.rank)
        own = view.servers()[view.rank]
        blame.tell(config.blame, blame.Joined(Whom("server", own.rank, own.host, own.pid)))
        logger.info("epoch %d runs with %d workers", view.epoch, view.size)
        epoch = epoch_of(view, config.grouped)
        if self._aggregator is None:
            self._aggregator = self._made(epoch)
        else:
            self._aggregator.enter(epoch)
        self._attach_early()
        self._report(view)

    def _made(self, epoch: _core.Epoch) -> _core.Aggregator:
        """The aggregator, which lives for as long as this process does."""
        config = self._config
        made = _core.Aggregator(
            self._job,
            epoch,
            self._shards,
            deterministic=config.deterministic,
            scheduled=config.server_enable_schedule,
            asynchronous=config.enable_async,
            stall_warn_s=config.stall_warn_s,
            verbose=config.ps_verbose,
            key_log=config.ps_key_log,
            debug=config.server_debug,
            debug_key=config.server_debug_key,
            sample=config.debug_sample_tensor,
        )
        asyncio.get_running_loop().add_reader(made.fileno(), self._events)
        return made

    def _report(self, view: View) -> None:
        """The numbers of this epoch."""
        loop, aggregator, channel = asyncio.get_running_loop(), self._aggregator, self._channel
        assert aggregator is not None and channel is not None

        def tell(samples: Sequence[Sample]) -> None:
            loop.call_soon_threadsafe(channel.send, Report(list(samples)))

        def reporter(port: int | None = None) -> Reporter:
            counted = lambda: metrics.of_server(aggregator.counters())  # noqa: E731
            return Reporter("server", view.rank, port, counted, tell)

        self._watching = Watching(reporter)
        if self._config.metrics_port:
            self._reporter = reporter(self._config.metrics_port + 1 + view.size + view.rank)

    def _attach_early(self) -> None:
        if self._view is None or self._aggregator is None:
            return
        for key in [key for key in self._early if key[0] <= self._view.epoch]:
            epoch, rank, shard = key
            sock, peer_pid, keys = self._early.pop(key)
            checksum, refusal = False, ""
            if epoch < self._view.epoch or rank >= self._view.size:
                refusal = "it has no place"
            else:
                try:
                    checksum = wants_checksum(self._config.checksum, sock, sealed=keys is not None)
                except OSError as error:  # while it waited; the scheduler will hear of it, too
                    refusal = f"it has gone: {why(error)}"
            if refusal:
                where = text_of(peer_of(sock))
                text = f"closed the connection of worker {rank} from {where}: {refusal}"
                self._lines.warning(f"worker {rank}", refusal, text)
                sock.close()
                continue
            tag = self._connections.add(rank, shard)
            self._aggregator.attach(shard, rank, sock.detach(), checksum, peer_pid, keys, tag)

    # Events of the aggregator

    def _events(self) -> None:
        for event in self._aggregator.events() if self._aggregator is not None else []:
            number = event.number
            if event.failure is None:
                log_native(number, event.text)
            elif event.failure is _core.FailureKind.MEMORY:
                self._exhaust(number, event.text)
            elif (place := self._connections.ended(event.connection)) is not None:
                self._connection_ended(place, event.failure, clean(event.text))

    def _connection_ended(self, place: tuple[int, int], failure: _core.FailureKind, reason: str) -> None:
        rank, shard = place
        if rank in self._departed or rank in self._accused or self._view is None:
            return
        worker, delay_s = self._view.workers()[rank], VERDICT_S
        if failure is _core.FailureKind.PROTOCOL:
            logger.error("%s broke the protocol: %s", worker, reason)
            delay_s = 0.0  # nobody else can know
        elif self._config.recovery:
            # The worker connects again when it needs us, or says that it cannot. If it is dead, the scheduler
            # has seen the end of its other connections, or misses its beats.
            logger.info("the connection of %s to shard %d broke: %s", worker, shard, reason)
            return
        self._accused.add(rank)
        asyncio.get_running_loop().call_later(delay_s, self._accuse, self._view.epoch, rank, reason)

    def _exhaust(self, rank: int, reason: str) -> None:
        """What could not fail alone has failed for want of memory; ``rank`` -1: not just one connection."""
        if self._exhausted or self._view is None or self._channel is None:
            return
        whom = f" with {self._view.workers()[rank]}" if rank >= 0 else ""
        advice = "give it more, or start more servers (DMLC_NUM_SERVER)"
        self._exhausted = f"it has no memory to go on{whom}: {clean(reason)}; {advice}"
        logger.error("%s", self._exhausted)
        self._channel.leave(Leave(failed=True, reason=self._exhausted[:1_000]), FAREWELL_S)

    def _accuse(self, epoch: int, rank: int, reason: str) -> None:
        if self._view is None or self._view.epoch != epoch or rank in self._departed or self._channel is None:
            return
        host = self._view.workers()[rank].host
        self._channel.send(Lost("worker", rank, host, reason[:1_000]))

    # The end

    def _end_epoch(self) -> None:
        self._trace.end(self._self())
        for each in (self._reporter, self._watching):
            if each is not None:
                each.close()
        self._reporter = self._watching = None
        if self._aggregator is not None:
            self._aggregator.clear()
        self._connections.clear()
        self._departed.clear()
        self._accused.clear()

    def _close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        if self._channel is not None:
            self._channel.close()
        self._end_epoch()
        if self._aggregator is not None:
            asyncio.get_running_loop().remove_reader(self._aggregator.fileno())
            self._aggregator.close()
        for waiting in self._early.values():
            waiting.sock.close()
        self._trace.finish()


def _set(future: asyncio.Future[int], value: int) -> None:
    if not future.done():
        future.set_result(value)


class Interrupted(BytePSError):
    """A signal ended this process."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.code = 128 + number
