"""The server process: registers, lets workers in, and hands their connections to the native aggregator.

One asyncio loop. A new epoch gets a new aggregator. Whether a worker whose connection ended is lost or has
merely left is the scheduler's to say: the server reports and waits for the verdict.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from typing import Any

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
from byteps.control.machines import children, piece_bytes
from byteps.control.memory import return_probe
from byteps.control.messages import (
    Assigned,
    Departed,
    Failed,
    Leave,
    Lost,
    Message,
    Prepare,
    Prepared,
    Refusal,
    Register,
    Retire,
    Shutdown,
    View,
)
from byteps.control.patience import make_patient
from byteps.control.scheduler_channel import SchedulerChannel, enter, registration
from byteps.errors import BytePSError, JoinError, OutOfMemoryError, ProtocolError
from byteps.observe.limited import Limited
from byteps.observe.logging import log_native, logger, set_identity, warn_once
from byteps.observe.text import clean

# How long to wait for the reason when a worker's data connection ends: the worker says goodbye to the
# scheduler before it closes, but the scheduler's word may reach us after the end of the connection.
VERDICT_S = 1.0
FAREWELL_S = 1.0
MAX_EARLY = 4_096  # connections of an epoch whose View has not come yet


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
        # By (epoch, rank, shard): the socket, and the worker's process if it may be read.
        self._early: dict[tuple[int, int, int], tuple[socket.socket, int]] = {}
        self._attached: set[tuple[int, int]] = set()  # (rank, shard) of this epoch
        self._departed: set[int] = set()
        self._accused: set[int] = set()
        self._exhausted = ""  # why this server cannot go on

    async def run(self) -> None:
        """Serve until the scheduler says that all workers are done. Raises an error of ``byteps.errors``."""
        loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._serve())
        stopped: asyncio.Future[int] = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _set, stopped, number)
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
        elif isinstance(message, Lost):
            if self._exhausted:
                raise OutOfMemoryError(self._exhausted)
            raise told(message, "server", -1 if self._view is None else self._view.rank)
        elif isinstance(message, Failed):
            raise JoinError(message.text)

    def _prepare(self, message: Prepare) -> None:
        """Take tensors in, before the scheduler tells any worker that their parts live here."""
        if self._view is None or self._aggregator is None or self._channel is None:
            raise ProtocolError("the scheduler has placed tensors on this server before any worker has come")
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

    # Start-up

    def _register(self, towards_scheduler: str) -> Register:
        config = self._config
        address = own_address(config.node_host, config.interface, towards_scheduler)
        if self._listener is None:
            host = bind_host(address, config.interface)
            self._listener = listen(host, config.port, "DMLC_PORT")
            if config.job_secret is None and not is_loopback(host):
                warn_once(
                    "no job secret is set, so anybody who reaches this server can push; set BYTEPS_JOB_SECRET"
                )
            probe = return_probe if config.enable_ipc else no_probe
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
            if (hello.rank, hello.shard) in self._attached:
                return f"worker {hello.rank} is already connected to shard {hello.shard}"
        elif (epoch, hello.rank, hello.shard) in self._early or len(self._early) >= MAX_EARLY:
            return (
                f"worker {hello.rank} comes to shard {hello.shard} before its epoch, and its place is taken"
            )
        return ""

    def _welcome(self, sock: socket.socket, hello: Hello, epoch: int) -> None:
        make_patient(sock, self._config)
        # A worker may hear of the epoch before this server does: its connection waits here.
        self._early[epoch, hello.rank, hello.shard] = sock, hello.memory.pid
        self._attach_early()

    def _begin(self, view: View) -> None:
        config = self._config
        self._end_epoch()
        self._view = view
        set_identity("server", view.rank)
        own = view.servers()[view.rank]
        blame.tell(config.blame, blame.Joined(Whom("server", own.rank, own.host, own.pid)))
        logger.info("epoch %d runs with %d workers", view.epoch, view.size)
        names, child_of = children(view, config.grouped)
        self._aggregator = _core.Aggregator(
            self._job,
            view.epoch,
            self._shards,
            names,
            ranks=[str(worker) for worker in view.workers()],
            child_of=child_of,
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
        asyncio.get_running_loop().add_reader(self._aggregator.fileno(), self._events)
        self._attach_early()

    def _attach_early(self) -> None:
        if self._view is None or self._aggregator is None:
            return
        for key in [key for key in self._early if key[0] <= self._view.epoch]:
            epoch, rank, shard = key
            sock, peer_pid = self._early.pop(key)
            checksum, refusal = False, ""
            if epoch < self._view.epoch or rank >= self._view.size or (rank, shard) in self._attached:
                refusal = "it has no place"
            else:
                try:
                    checksum = wants_checksum(self._config.checksum, sock)
                except OSError as error:  # while it waited; the scheduler will hear of it, too
                    refusal = f"it has gone: {why(error)}"
            if refusal:
                where = text_of(peer_of(sock))
                text = f"closed the connection of worker {rank} from {where}: {refusal}"
                self._lines.warning(f"worker {rank}", refusal, text)
                sock.close()
                continue
            self._attached.add((rank, shard))
            self._aggregator.attach(shard, rank, sock.detach(), checksum, peer_pid)

    # Events of the aggregator

    def _events(self) -> None:
        for event in self._aggregator.events() if self._aggregator is not None else []:
            number = event.number
            if event.failure is None:
                log_native(number, event.text)
            elif event.failure is _core.FailureKind.MEMORY:
                self._exhaust(number, event.text)
            elif number not in self._departed and number not in self._accused and self._view is not None:
                text = clean(event.text)
                self._accused.add(number)
                delay_s = VERDICT_S
                if event.failure is _core.FailureKind.PROTOCOL:
                    logger.error("%s broke the protocol: %s", self._view.workers()[number], text)
                    delay_s = 0.0  # nobody else can know
                epoch = self._view.epoch
                asyncio.get_running_loop().call_later(delay_s, self._accuse, epoch, number, text)

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
        aggregator, self._aggregator = self._aggregator, None
        if aggregator is not None:
            asyncio.get_running_loop().remove_reader(aggregator.fileno())
            aggregator.close()
        self._attached.clear()
        self._departed.clear()
        self._accused.clear()

    def _close(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
        if self._channel is not None:
            self._channel.close()
        self._end_epoch()
        for sock, _ in self._early.values():
            sock.close()


def _set(future: asyncio.Future[int], value: int) -> None:
    if not future.done():
        future.set_result(value)


class Interrupted(BytePSError):
    """A signal ended this process."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.code = 128 + number
