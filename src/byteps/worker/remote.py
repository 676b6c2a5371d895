"""Joins a job with servers: the control client finds the members, the native client moves the bytes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from byteps import _core
from byteps.config import Config
from byteps.control.hello import job_number
from byteps.control.machines import children, on_one_host
from byteps.control.messages import TensorSpec, View
from byteps.observe import logging
from byteps.scheduler.placement import aligned
from byteps.worker.control import ControlClient
from byteps.worker.failures import loss
from byteps.worker.interface import Place, Placement, Spec
from byteps.worker.machine import Machine
from byteps.worker.session import Session

__all__ = ["join"]

# A server that ends because a worker died closes our connection, too. The scheduler knows the cause: it
# gets this long to name it before we blame the server.
VERDICT_S = 1.0


def join(config: Config) -> Session:
    """Register, wait for everybody, connect to every shard of every server."""
    machine = Machine(config)
    try:
        control = RemoteControl(config)
        view = control.scheduler.join()
        try:
            client = control.connect(view, machine)
            session = Session(config, _place(view), control, client, shares_memory=machine.shared)
            control.attach(session)
        except BaseException as error:
            control.leave(suspend=False, failed=True, reason=f"{type(error).__name__}: {error}")
            raise
    finally:
        machine.close()
    logging.set_identity("worker", view.rank)
    return session


def _place(view: View) -> Place:
    own = view.workers()[view.rank]
    return Place(view.rank, view.size, own.local_rank, own.local_size)


class RemoteControl:
    """The control plane as a session sees it, and the ear for events of the native client."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.scheduler = ControlClient(
            config, on_lost=self._on_lost, on_conflict=self._on_conflict, on_departed=self._on_departed
        )
        self._client: _core.Client | None = None
        self._session: Session | None = None
        self._early: list[Callable[[Session], None]] = []  # news from before there was a session
        self._hosts: dict[str, list[str]] = {}  # by role and rank
        self._gone: set[tuple[str, int]] = set()  # members that cannot be reached, by role and rank
        self._sockets: list[tuple[int, int]] = []  # (descriptor, inode)
        self._lock = threading.Lock()

    def connect(self, view: View, machine: Machine) -> _core.Client:
        """The native client, connected and started."""
        config = self._config
        self._hosts = {
            "server": [server.host for server in view.servers()],
            "worker": [worker.host for worker in view.workers()],
        }
        client = _core.Client(
            job_number(config.job_id),
            view.epoch,
            view.rank,
            credit_bytes=config.scheduling_credit * aligned(config.partition_bytes),
            op_timeout_s=config.op_timeout_s,
            stall_warn_s=config.stall_warn_s,
            servers=[str(server) for server in view.servers()],
            worker_hosts=self._hosts["worker"],
            child_of=children(view, config.grouped)[1],
            verbose=config.ps_verbose,
            sample=config.debug_sample_tensor,
            telemetry=config.telemetry_on,
            ranks=view.size,
            codec_threads=config.threadpool_size,
            piece_bytes=_core.PIECE_BYTES if on_one_host(view) else _core.FAR_PIECE_BYTES,
        )
        group = self.scheduler.form_group(machine, view)
        if group is not None:
            client.join(group)
        connections = self.scheduler.open_data_connections(view)
        fds = [*self.scheduler.inherited_fds(), *(connection.fd for connection in connections)]
        self._sockets = [(fd, os.fstat(fd).st_ino) for fd in fds]
        for connection in connections:
            client.connect(*connection)
        client.start()
        self._client = client
        self.scheduler.add_reader(client.fileno(), self._on_native_events)
        return client

    def attach(self, session: Session) -> None:
        """From now on the session hears the news; first of all what came before it."""
        with self._lock:
            self._session = session
            early, self._early = self._early, []
        for news in early:
            news(session)

    def _tell(self, news: Callable[[Session], None]) -> None:
        with self._lock:
            session = self._session
            if session is None:
                self._early.append(news)
                return
        news(session)

    # What a session calls

    def declare(self, specs: Sequence[tuple[Spec, int]]) -> list[Placement]:
        placed = self.scheduler.declare(
            [
                TensorSpec(spec.name, generation, spec.dtype, list(spec.shape), spec.codec, spec.direct)
                for spec, generation in specs
            ]
        )
        return [Placement(each.tensor_id, each.placement) for each in placed]

    def barrier(self, timeout_s: float) -> None:
        self.scheduler.barrier(timeout_s)

    def leave(self, *, suspend: bool, failed: bool, reason: str) -> None:
        if self._client is not None:
            self.scheduler.remove_reader(self._client.fileno())
        self.scheduler.leave(suspend=suspend, failed=failed, reason=reason)

    def inherited_fds(self) -> list[int]:
        # A socket may have been closed since, and its number may belong to a file of the user now.
        return [fd for fd, inode in self._sockets if _inode(fd) == inode]

    # In the control thread

    def _on_lost(self, role: str, rank: int, host: str, reason: str) -> None:
        self._tell(lambda session: session.lost(loss(role, rank, host, reason)))

    def _on_conflict(self, tensor_id: int, name: str, text: str) -> None:
        self._tell(lambda session: session.refuse(name, tensor_id, text))

    def _on_departed(self, rank: int) -> None:
        self._tell(lambda _: self._depart(rank))

    def _depart(self, rank: int) -> None:
        depart = getattr(self._client, "depart", None)  # only a client with a local group waits for ranks
        if depart is not None:
            depart(rank)

    def _on_native_events(self) -> None:
        if self._client is None:
            return
        for kind, number, text in self._client.events():
            if kind == "log":
                logging.log_native(number, text)
            elif kind == "gone":
                self._member_gone("worker", number, text)
            else:
                self._member_gone("server", number, text)

    def _member_gone(self, role: str, rank: int, reason: str) -> None:
        if (role, rank) in self._gone:  # every connection and every operation tells
            return
        self._gone.add((role, rank))
        host = self._hosts[role][rank]
        self.scheduler.report_lost(role, rank, host, reason)
        verdict = threading.Timer(VERDICT_S, self._on_lost, (role, rank, host, reason))
        verdict.daemon = True
        verdict.start()


def _inode(fd: int) -> int:
    try:
        return os.fstat(fd).st_ino
    except OSError:
        return -1
