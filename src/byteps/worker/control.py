"""A worker's side of the control plane: join, declare, barrier, leave, and word of who is lost.

Everything runs in one daemon thread with an asyncio loop; the methods may be called from any thread and
block, bounded. Callbacks run in the control thread and must not block.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Sequence

from byteps import _core
from byteps.config import Config
from byteps.control.channel import show_wire
from byteps.control.link import Link, join, registration
from byteps.control.messages import (
    Barrier,
    BarrierDone,
    Conflict,
    Declare,
    Declared,
    Departed,
    Failed,
    Leave,
    Lost,
    Message,
    Placed,
    TensorSpec,
    View,
    Waiting,
)
from byteps.errors import (
    BytePSError,
    DeclarationError,
    JoinError,
    NotInitializedError,
    PeerLostError,
    ProtocolError,
)
from byteps.observe.logging import logger
from byteps.worker import services
from byteps.worker.data_connections import DataConnection, open_all
from byteps.worker.loop_thread import LoopThread
from byteps.worker.machine import Machine
from byteps.worker.requests import Requests, batches

FAREWELL_S = 2.0
VERDICT_S = 1.0
MARGIN_S = 5.0  # the control thread keeps its own deadlines; this is for a thread that cannot run

OnLost = Callable[[str, int, str, str], None]  # role, rank, host, reason
OnConflict = Callable[[int, str, str], None]  # tensor id, name, text
OnDeparted = Callable[[int], None]  # rank of a worker that has left

# Suspended clients of this process: each keeps its connection, so that the scheduler sees whether the process
# lives on, until the next membership has begun.
_suspended: list[ControlClient] = []
_suspended_lock = threading.Lock()


class ControlClient:
    """One membership's connection with the scheduler."""

    def __init__(
        self, config: Config, *, on_lost: OnLost, on_conflict: OnConflict, on_departed: OnDeparted
    ) -> None:
        show_wire(config.ps_verbose)
        self._config = config
        self._on_lost = on_lost
        self._on_conflict = on_conflict
        self._on_departed = on_departed
        self._thread = LoopThread("byteps-control")
        self._link: Link | None = None
        self._reader: asyncio.Task[None] | None = None
        self._requests = Requests()
        self._failure: BytePSError | None = None
        self._leaving = False
        self._rank = -1
        self._departed = asyncio.Event()

    # Calls

    def join(self) -> View:
        """Register with the scheduler, which rank 0 of a job on one machine starts, and wait for everybody.

        JoinTimeoutError names who is missing, JoinError what was refused; the client is closed then.
        """
        try:
            with _suspended_lock:
                suspended = bool(_suspended)
            started = services.start(self._config, suspended=suspended)
            work = services.beside(started, self._join())
            view = self._thread.call(work, self._config.connect_timeout_s + MARGIN_S)
        except BaseException:
            self.close()
            services.abandon()
            raise
        with _suspended_lock:
            earlier = _suspended.copy()
            _suspended.clear()
        for client in earlier:
            client.close()
        return view

    def declare(self, tensors: Sequence[TensorSpec]) -> list[Placed]:
        """Tell the scheduler about tensors; learn their ids and places.

        DeclarationError names every tensor that ranks disagree on. The others are declared all the same, and
        declaring them again gets the same answer.
        """
        timeout_s = self._config.op_timeout_s
        placed: list[Placed] = []
        for batch in batches(tensors, self._config.partition_bytes):
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
            raise DeclarationError("\n".join(dict.fromkeys(errors)))
        return placed

    def barrier(self, timeout_s: float) -> None:
        """Wait until every worker is here. PeerLostError if one has left."""
        answer = self._thread.call(self._ask("barrier", Barrier, timeout_s), timeout_s + MARGIN_S)
        if isinstance(answer, BarrierDone) and answer.left is not None:
            gone = answer.left
            text = (
                f"barrier: {gone} has left the job and will not come; all workers must call it equally often"
            )
            raise PeerLostError(text, gone.role, gone.rank, gone.host)

    def leave(self, *, suspend: bool = False, failed: bool = False, reason: str = "") -> None:
        """Say goodbye, bounded; fine to call twice, and after a failure. Data connections close after it.

        ``suspend`` keeps the connection until the next client of this process has joined.
        """
        if self._leaving:
            return
        try:
            self._thread.call(self._leave(Leave(suspend, failed, reason[:1_000])), FAREWELL_S + MARGIN_S)
        except BytePSError:
            pass  # the thread has ended
        if suspend and self._link is not None:
            with _suspended_lock:
                _suspended.append(self)
        else:
            self.close()

    def report_lost(self, role: str, rank: int, host: str, reason: str) -> None:
        """Tell the scheduler that a member cannot be reached; it decides, and tells everybody."""
        message = Lost(role, rank, host, reason[:1_000])
        self._thread.run(lambda: self._link.send(message) if self._link is not None else None)

    def close(self) -> None:
        """End the thread and the connections without a goodbye; fine to call twice."""
        self._leaving = True
        try:
            self._thread.run(self._end, FAREWELL_S)
        except BytePSError:
            pass
        self._thread.stop()

    def add_reader(self, fileno: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` in the control thread whenever the descriptor is readable."""
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
        return self._thread.call(work, self._config.connect_timeout_s + MARGIN_S)

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
            raise JoinError(
                f"worker {view.rank} could not form the group of its machine: "
                f"{error or f'not all ranks came within {timeout_s:g} s'}; "
                "BYTEPS_ENABLE_IPC=0 everywhere does without shared memory"
            ) from None

    def inherited_fds(self) -> list[int]:
        """Sockets that a forked child must let go of, or peers would not see this process die."""
        with _suspended_lock:
            clients = [self, *_suspended]
        return [fd for client in clients if client._link is not None for fd in client._link.fds]

    # In the control thread

    async def _join(self) -> View:
        config = self._config
        deadline = time.monotonic() + config.connect_timeout_s
        self._link, view = await join(
            config, "worker", lambda address: registration(config, "worker", address=address), deadline
        )
        self._rank = view.rank
        self._reader = asyncio.ensure_future(self._read(self._link))
        return view

    async def _read(self, link: Link) -> None:
        try:
            while self._failure is None:
                self._handle(await link.receive())
        except (OSError, ProtocolError) as error:
            self._lost("scheduler", 0, self._config.root_uri, str(error))
        finally:
            link.close()

    def _handle(self, message: Message) -> None:
        if isinstance(message, (Declared, BarrierDone)):
            self._requests.answer(message.id, message)
        elif isinstance(message, Conflict):
            self._tell(self._on_conflict, message.tensor_id, message.name, message.text)
        elif isinstance(message, Lost):
            self._lost(message.role, message.rank, message.host, message.reason)
        elif isinstance(message, Failed):
            self._lost("scheduler", 0, self._config.root_uri, message.text)
        elif isinstance(message, Waiting):
            self._requests.hint = message.text
            logger.warning("%s", message.text)
        elif isinstance(message, Departed):
            if message.rank == self._rank:
                self._departed.set()
            else:
                self._tell(self._on_departed, message.rank)
        else:
            raise ProtocolError(f"the scheduler sent {type(message).__name__} to a worker")

    def _lost(self, role: str, rank: int, host: str, reason: str) -> None:
        """The first loss counts: what follows from it is no news."""
        if self._leaving or self._failure is not None:
            self._requests.fail(self._failure or NotInitializedError("this process has left the job"))
            return
        name = f"{role} {rank}" if role != "scheduler" else role
        text = f"{name} (host {host}) was lost: {reason}; this job cannot go on, start it again"
        self._failure = PeerLostError(text, role, rank, host)
        self._requests.fail(self._failure)
        self._tell(self._on_lost, role, rank, host, reason)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:
            logger.exception("a callback of the control thread failed")

    async def _ask(self, what: str, make: Callable[[int], Message], timeout_s: float) -> Message:
        if self._link is None or self._leaving:
            raise NotInitializedError(f"{what}: this process is not a member of a job")
        return await self._requests.ask(what, make, self._link.send, timeout_s)

    async def _leave(self, message: Leave) -> None:
        self._leaving = True
        self._requests.fail(NotInitializedError("this process has left the job"))
        if self._link is None or self._reader is None or self._failure is not None:
            return
        if message.suspend:
            self._link.send(message)
            await asyncio.wait({asyncio.ensure_future(self._departed.wait())}, timeout=FAREWELL_S)
        else:
            self._link.leave(message, FAREWELL_S)
            await asyncio.wait({self._reader}, timeout=FAREWELL_S)

    def _end(self) -> None:
        self._leaving = True
        if self._reader is not None:
            self._reader.cancel()
        if self._link is not None:
            self._link.close()
            self._link = None
