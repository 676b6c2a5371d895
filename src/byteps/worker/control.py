"""A worker's side of the control plane: register, declare, barrier, leave, and word of who is lost.

A session uses it as it is (``interface.Control``); below it there is only the channel to the scheduler.
Everything runs in one daemon thread with an asyncio loop; the methods may be called from any thread and
block, bounded. Callbacks run in the control thread and must not block.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from byteps import _core
from byteps.config import Config
from byteps.control.blame import Whom
from byteps.control.channel import show_wire
from byteps.control.loss import ended, left, loss, told
from byteps.control.messages import (
    Barrier,
    BarrierDone,
    Conflict,
    Declare,
    Declared,
    Departed,
    Dump,
    Failed,
    Lacking,
    Leave,
    Lost,
    Message,
    NamesDiffer,
    Placed,
    Report,
    TensorSpec,
    Tracing,
    Unreachable,
    View,
    Waiting,
    Watched,
)
from byteps.control.progress import Progress
from byteps.control.scheduler_channel import SchedulerChannel, enter, registration
from byteps.control.shortage import is_shortage
from byteps.errors import (
    BytePSError,
    DeclarationError,
    JoinError,
    NotInitializedError,
    OutOfMemoryError,
    PeerLostError,
    ProtocolError,
)
from byteps.observe.logging import logger
from byteps.tensor.tuning import SPREAD_BYTES
from byteps.worker import autopsy, returning, services
from byteps.worker.data_connections import DataConnection, open_all
from byteps.worker.interface import Placement, Spec
from byteps.worker.loop_thread import LoopThread
from byteps.worker.machine import Machine
from byteps.worker.requests import Requests, batches, placements, told_spec

T = TypeVar("T")

FAREWELL_S = 2.0
VERDICT_S = 1.0
# The control thread ends a call at its deadline by itself. A caller gives up this much later, because then
# that thread is stuck.
MARGIN_S = 5.0

OnLost = Callable[[PeerLostError], None]
OnConflict = Callable[[Conflict], None]
OnDeparted = Callable[[int, str], None]  # rank of a worker that has left, and what it said
# A sentence about names that only some ranks have declared, and whether the ranks really use different names;
# if not, some of them may just be slower.
OnNames = Callable[[str, bool], None]


class ControlClient:
    """One membership's connection with the scheduler."""

    def __init__(
        self,
        config: Config,
        *,
        on_lost: OnLost,
        on_conflict: OnConflict,
        on_departed: OnDeparted,
        on_names: OnNames = lambda text, crossed: None,
        on_dump: Callable[[str], None] = lambda reason: None,
        on_watched: Callable[[float], None] = lambda for_s: None,
    ) -> None:
        show_wire(config.ps_verbose)
        self._config = config
        self._on_lost = on_lost
        self._on_conflict = on_conflict
        self._on_departed = on_departed
        self._on_names = on_names
        self._on_dump = on_dump
        self._on_watched = on_watched
        self._thread = LoopThread("byteps-control")
        self._channel: SchedulerChannel | None = None
        self._reader: asyncio.Task[None] | None = None
        self._requests = Requests()
        self._readers: list[int] = []
        self._sockets: list[tuple[int, int]] = []  # (descriptor, inode), once all are open
        self._failure: BytePSError | None = None
        self._leaving = False
        self._rank = -1
        self._departed = asyncio.Event()
        self._awaited = Progress(limit_s=0.0, quiet_s=0.0)

    # Calls

    def register(self) -> View:
        """Register with the scheduler, which rank 0 of a job on one machine starts, and wait for everybody.

        JoinTimeoutError names who is missing, JoinError what was refused; the client is closed then.
        """
        try:
            returning.require_a_job(self._config)
            started = services.start(self._config, suspended=returning.is_expected())
            work = services.beside(started, self._register())
            view = self._thread.call(work, self._config.connect_timeout_s + MARGIN_S)
        except BaseException:
            self.close()
            services.abandon()
            raise
        returning.let_go()
        return view

    def declare(self, specs: Sequence[tuple[Spec, int]]) -> list[Placement]:
        """As ``place``, for a session: specs and generations in, the place of every partition out."""
        return placements(self.place([told_spec(spec, generation) for spec, generation in specs]))

    def place(self, tensors: Sequence[TensorSpec]) -> list[Placed]:
        """Tell the scheduler about tensors; learn their ids and places.

        DeclarationError names every tensor that ranks disagree on, OutOfMemoryError those that a server has
        no memory for. The others are declared all the same, and
        declaring them again gets the same answer.
        """
        timeout_s = self._config.op_timeout_s
        placed: list[Placed] = []
        for batch in batches(tensors, self._config.partition_bytes or SPREAD_BYTES):
            what = f"declaration of {batch[0].name!r}" + (
                f" and {len(batch) - 1} more" if len(batch) > 1 else ""
            )
            request = self._ask(what, functools.partial(Declare, tensors=batch), timeout_s)
            answer = self._thread.call(request, timeout_s + MARGIN_S)
            if not isinstance(answer, Declared) or len(answer.tensors) != len(batch):
                raise ProtocolError(f"{what}: the scheduler's answer does not fit")
            placed += answer.tensors
        errors = [one.error for one in placed if one.error]
        if errors:
            kind = OutOfMemoryError if any(one.lack for one in placed) else DeclarationError
            raise kind("\n".join(dict.fromkeys(errors)))
        return placed

    def barrier(self, timeout_s: float) -> None:
        """Wait until every worker is here. PeerLostError if one has left."""
        answer = self._thread.call(self._ask("barrier", Barrier, timeout_s), timeout_s + MARGIN_S)
        if isinstance(answer, BarrierDone) and answer.left is not None:
            raise left(answer.left, "barrier", "all workers must call it equally often")

    def leave(
        self,
        *,
        suspend: bool = False,
        failed: bool = False,
        reason: str = "",
        because: PeerLostError | None = None,
    ) -> None:
        """Say goodbye, bounded; fine to call twice, and after a failure. Data connections close after it.

        ``suspend`` keeps the connection until the next client of this process has joined (``returning``).
        ``because``: the loss that ends this process.
        """
        for fileno in self._readers:
            self.remove_reader(fileno)
        self._readers.clear()
        if self._leaving:
            return
        lost = None
        if because is not None:
            why = (because.reason or str(because))[:1_000]
            lost = Lost(because.role, max(because.rank, 0), because.host, why, because.pid)
        goodbye = Leave(suspend, failed, reason[:1_000], lost)
        try:
            self._thread.call(self._leave(goodbye), FAREWELL_S + MARGIN_S)
        except BytePSError:
            pass  # the thread has ended
        if suspend and self.is_connected():
            returning.stay(self)
        else:
            self.close()

    def lack(self, tensor_id: int, reason: str) -> None:
        """This process has no memory for what it has declared: nobody may wait for its contributions."""
        self.report(Lacking(tensor_id, reason))

    def clock(self) -> tuple[int, int]:
        """What to add to our times to get those of the scheduler's machine, and how wrong that may be."""
        offset = None if self._channel is None else self._channel.clock.offset
        return (0, 0) if offset is None else (offset.ns, offset.error_ns)

    def ask_clock(self) -> None:
        """Find out more exactly how far clocks are apart; the answer comes by itself."""
        self._thread.run(lambda: self._channel.ask_clock() if self._channel is not None else None)

    def report(self, message: Lost | Unreachable | Lacking | Tracing | Dump | Report) -> None:
        """Tell the scheduler that a member is gone, out of reach or out of memory; it tells everybody."""
        self._thread.run(lambda: self._channel.send(message) if self._channel is not None else None)

    def close(self) -> None:
        """End the thread and the connections without a goodbye; fine to call twice."""
        self._leaving = True
        try:
            self._thread.run(self._end, FAREWELL_S)
        except BytePSError:
            pass
        self._thread.stop()

    def add_reader(self, fileno: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the control thread whenever the descriptor is readable, until ``leave``."""
        self._readers.append(fileno)
        self._thread.run(lambda: self._thread.loop.add_reader(fileno, callback))

    def remove_reader(self, fileno: int) -> None:
        """After this the callback runs no more, and the descriptor may be closed."""
        try:
            self._thread.run(lambda: self._thread.loop.remove_reader(fileno))
        except NotInitializedError:
            pass

    def open_data_connections(self, view: View) -> list[DataConnection]:
        """A connection to every shard of every server, opened side by side; all or none."""
        deadline = time.monotonic() + self._config.connect_timeout_s
        work = self._requests.unless_failed(open_all(self._config, view, deadline))
        found = self._thread.call(work, self._config.connect_timeout_s + MARGIN_S)
        fds = [*(self._channel.fds if self._channel is not None else ()), *(each.fd for each in found)]
        self._sockets = [(fd, os.fstat(fd).st_ino) for fd in fds]
        return found

    def keep_watch(self, fd: int) -> None:
        """One more socket that a forked child must let go of; those that were closed meanwhile are none."""
        self._sockets = [(fd, inode) for fd, inode in self._sockets if _inode(fd) == inode]
        self._sockets.append((fd, os.fstat(fd).st_ino))

    def unless_failed(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """``work``, for the control thread; it ends when a member is lost or this process leaves."""
        return self._requests.unless_failed(work)

    def form_group(self, machine: Machine, view: View) -> _core.LocalGroup | None:
        """The group of this rank's machine; raises as soon as a member is lost."""
        timeout_s = self._config.connect_timeout_s

        async def form() -> _core.LocalGroup | None:
            try:
                return await asyncio.wait_for(machine.form(view), timeout_s)
            except (OSError, ProtocolError):
                # One of them may have died. Then the scheduler names it, and its word ends this wait.
                await asyncio.sleep(VERDICT_S)
                raise

        work = self._requests.unless_failed(form())
        try:
            return self._thread.call(work, timeout_s + MARGIN_S)
        except (asyncio.TimeoutError, OSError, ProtocolError) as error:
            if is_shortage(error):
                raise
            raise JoinError(
                f"worker {view.rank} could not form the group of its machine: "
                f"{error or f'not all ranks came within {timeout_s:g} s'}; "
                "BYTEPS_ENABLE_IPC=0 everywhere does without shared memory"
            ) from None

    def inherited_fds(self) -> list[int]:
        """Sockets that a forked child must let go of, or peers would not see this process die."""
        if not self._sockets:
            return [] if self._channel is None else list(self._channel.fds)
        # A socket may have been closed since, and its number may belong to a file of the user now.
        return [fd for fd, inode in self._sockets if _inode(fd) == inode]

    def is_connected(self) -> bool:
        """Whether the scheduler is still there for this client."""
        return self._reader is not None and not self._reader.done() and self._failure is None

    # In the control thread

    async def _register(self) -> View:
        config = self._config
        deadline = time.monotonic() + config.connect_timeout_s
        self._channel, view = await enter(
            config, "worker", lambda address: registration(config, "worker", address), deadline
        )
        self._rank = view.rank
        self._reader = asyncio.ensure_future(self._read(self._channel))
        return view

    async def _read(self, channel: SchedulerChannel) -> None:
        try:
            while self._failure is None:
                await self._handle(await channel.receive())
        except (OSError, ProtocolError) as error:
            await self._lose_scheduler(str(error))
        finally:
            channel.close()

    async def _lose_scheduler(self, reason: str) -> None:
        found = None if self._leaving else await autopsy.of("scheduler", self._config)
        if found is None:
            self._lost(loss(Whom("scheduler", 0, self._config.root_uri), reason))
        else:
            self._lost(loss(found.whom, found.text if found.code else f"{reason}; {found.text}"))

    async def _handle(self, message: Message) -> None:
        if self._leaving:
            self._hear(message)
        elif isinstance(message, (Declared, BarrierDone)):
            self._requests.answer(message.id, message)
        elif isinstance(message, Conflict):
            self._tell(self._on_conflict, message)
        elif isinstance(message, Lost):
            if message.role == "server" and not self._leaving:  # this rank may have started it
                await autopsy.of("server", self._config)
            self._lost(told(message, "worker", self._rank))
        elif isinstance(message, Failed):
            self._lost(ended(self._config.root_uri, message.text))
        elif isinstance(message, Waiting):
            self._requests.hint = message.text
            logger.warning("%s", message.text)
        elif isinstance(message, NamesDiffer):
            self._tell(self._on_names, message.text, message.crossed)
        elif isinstance(message, Departed):
            self._tell(self._on_departed, message.rank, message.reason)
        elif isinstance(message, Dump):
            self._tell(self._on_dump, message.reason)
        elif isinstance(message, Watched):
            self._tell(self._on_watched, message.for_s)
        else:
            raise ProtocolError(f"the scheduler sent {type(message).__name__} to a worker")

    def _hear(self, message: Message) -> None:
        """After leaving: no session is left to tell, but a later ``init()`` must know how the job ended."""
        if isinstance(message, Departed) and message.rank == self._rank:
            self._departed.set()
        elif isinstance(message, Lost):
            returning.remember_end(self._config, str(told(message, "worker", self._rank)))
        elif isinstance(message, Failed):
            returning.remember_end(self._config, message.text)
        elif isinstance(message, Waiting):
            self._awaited.say(f"the others wait for this process to come back: {message.text}")

    def _lost(self, error: PeerLostError) -> None:
        """The first loss counts: what follows from it is no news."""
        if self._leaving or self._failure is not None:
            self._requests.fail(self._failure or NotInitializedError("this process has left the job"))
            return
        self._failure = error
        returning.remember_end(self._config, str(error))
        self._requests.fail(error)
        self._tell(self._on_lost, error)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:
            logger.exception("a callback of the control thread failed")

    async def _ask(self, what: str, make: Callable[[int], Message], timeout_s: float) -> Message:
        if self._channel is None or self._leaving:
            raise NotInitializedError(f"{what}: this process is not a member of a job")
        return await self._requests.ask(what, make, self._channel.send, timeout_s)

    async def _leave(self, message: Leave) -> None:
        self._leaving = True
        self._requests.fail(NotInitializedError("this process has left the job"))
        if self._channel is None or self._reader is None or self._failure is not None:
            return
        if message.suspend:
            self._channel.send(message)
            heard = asyncio.ensure_future(self._departed.wait())
            either: set[asyncio.Future[Any]] = {heard, self._reader}
            await asyncio.wait(either, timeout=FAREWELL_S, return_when=asyncio.FIRST_COMPLETED)
            heard.cancel()
        else:
            self._channel.leave(message, FAREWELL_S)
            await asyncio.wait({self._reader}, timeout=FAREWELL_S)

    def _end(self) -> None:
        self._leaving = True
        if self._reader is not None:
            self._reader.cancel()
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _inode(fd: int) -> int:
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return -1
