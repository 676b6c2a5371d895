"""Joins a job with servers: the control client finds the members, the native client moves the bytes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from byteps import _core
from byteps.config import Config
from byteps.control import blame
from byteps.control.blame import Whom
from byteps.control.hello import job_number
from byteps.control.loss import loss
from byteps.control.machines import epoch_of, piece_bytes
from byteps.control.messages import Conflict, Lost, Role, Unreachable, View
from byteps.errors import PeerLostError
from byteps.observe import logging
from byteps.observe.text import clean
from byteps.tensor.partition import aligned
from byteps.tensor.tuning import USUAL_BYTES
from byteps.worker.control import ControlClient
from byteps.worker.data_connections import DataConnection
from byteps.worker.interface import Place
from byteps.worker.machine import Machine
from byteps.worker.observer import Observer
from byteps.worker.reconnect import Reconnector
from byteps.worker.session import Session

__all__ = ["open_session"]

# A server that ends because a worker died closes our connection, too. The scheduler knows the cause: it
# gets this long to name it before we blame the server.
VERDICT_S = 1.0
_WAITS = " waits for "  # in what the core says of an operation that takes long


def open_session(config: Config) -> Session:
    """Register, wait for everybody, connect to every shard of every server."""
    machine = Machine(config)
    try:
        ear = Ear(config)
        control = ear.control
        view = control.register()
        own = view.workers()[view.rank]
        blame.tell(config.blame, blame.Joined(Whom("worker", own.rank, own.host, own.pid)))
        try:
            client = ear.connect(view, machine)
            session = Session(
                config,
                _place(view),
                control,
                client,
                shares_memory=machine.shared,
                on_step=lambda number: observer.on_step(number),
            )
            observer = session.follower(Observer, lambda: Observer(config, session, control))
            session.flight = observer.flight
            ear.observer = observer
            ear.attach(session)
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


class Ear:
    """Hears what the scheduler and the native client have to say, and tells the session."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.control = ControlClient(
            config,
            on_lost=self._on_lost,
            on_conflict=self._on_conflict,
            on_departed=self._on_departed,
            on_names=self._on_names,
            on_dump=self._on_dump,
            on_watched=self._on_watched,
        )
        self.observer: Observer | None = None
        self._names = ""  # which only some ranks have declared, as the scheduler said last
        self._waited = False  # an operation has waited for long
        self._client: _core.Client | None = None
        self._reconnector: Reconnector | None = None
        self._session: Session | None = None
        self._early: list[Callable[[Session], None]] = []  # news from before there was a session
        self._hosts: dict[str, list[str]] = {}  # by role and rank
        self._gone: set[tuple[str, int]] = set()  # members that cannot be reached, by role and rank
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
            epoch_of(view, config.grouped),
            view.rank,
            credit_bytes=config.scheduling_credit * aligned(config.partition_bytes or USUAL_BYTES),
            op_timeout_s=config.op_timeout_s,
            stall_warn_s=config.stall_warn_s,
            verbose=config.ps_verbose,
            sample=config.debug_sample_tensor,
            telemetry=config.telemetry_on,
            codec_threads=config.threadpool_size,
            piece_bytes=piece_bytes(view),
            tolerated_silence_s=config.heartbeat_timeout_s,
        )
        group = self.control.form_group(machine, view)
        if group is not None:
            client.join(group)
        self._reconnector = Reconnector(config, view, self._connect_again, self._on_unreachable)
        for connection in self.control.open_data_connections(view):
            client.connect(*self._reconnector.tagged(connection))
        client.start()
        self._client = client
        self.control.add_reader(client.fileno(), self._on_native_events)
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

    # In the control thread

    def _on_lost(self, error: PeerLostError) -> None:
        self._tell(lambda session: session.lost(error))

    def _on_conflict(self, found: Conflict) -> None:
        self._tell(lambda session: session.refuse(found.name, found.tensor_id, found.text, found.lack))

    def _on_departed(self, rank: int, reason: str) -> None:
        self._tell(lambda session: self._depart(session, rank, reason))

    def _on_dump(self, reason: str) -> None:
        if self.observer is not None:
            self.observer.flight.write_soon(reason)

    def _on_watched(self, for_s: float) -> None:
        if self.observer is not None:
            self.observer.watch(for_s)

    def _on_names(self, text: str, crossed: bool) -> None:
        self._names = text
        self._tell(lambda session: session.names_differ(text))
        if text:  # ranks that are merely slower are no news, unless somebody waits for them
            level = logging.LEVELS["WARNING" if crossed or self._waited else "INFO"]
            logging.logger.log(level, "%s", text)

    def _depart(self, session: Session, rank: int, reason: str) -> None:
        session.departed(rank, reason)
        depart = getattr(self._client, "depart", None)  # only a client with a local group waits for ranks
        if depart is not None:
            depart(rank)

    def _on_native_events(self) -> None:
        if self._client is None:
            return
        for event in self._client.events():
            if event.failure is None:
                text = event.text
                if _WAITS in text:
                    self._waited = True
                    if self.observer is not None:
                        self.observer.stalled(text)
                    text += f"; {self._names}" if self._names else ""
                logging.log_native(event.number, text)
            elif event.failure is _core.FailureKind.MEMORY or not event.role:
                self._tell(functools.partial(Session.run_out, why=event.text))
            elif not self._is_broken_only(event):
                unreachable = event.failure is _core.FailureKind.UNREACHABLE
                self._member_gone(event.role, event.number, self._reason(event), unreachable)

    def _reason(self, event: _core.Event) -> str:
        """In words, with the setting that decided it."""
        if event.failure is not _core.FailureKind.UNREACHABLE:
            return clean(event.text)
        return f"{clean(event.text)} (PS_HEARTBEAT_TIMEOUT = {self._config.heartbeat_timeout_s:g})"

    def _is_broken_only(self, event: _core.Event) -> bool:
        """A connection has ended, and another one may be made in its place: nobody is gone yet."""
        if event.failure not in (_core.FailureKind.LOST, _core.FailureKind.UNREACHABLE):
            return False
        if self._reconnector is None or (event.role, event.number) in self._gone:
            return False
        return self._reconnector.ended(event.connection, self._reason(event), self.control.unless_failed)

    def _connect_again(self, connection: DataConnection) -> None:
        assert self._client is not None  # it has told of the end
        self.control.keep_watch(connection.fd)
        self._client.connect(*connection)

    def _on_unreachable(self, server: int, reason: str) -> None:
        self._member_gone("server", server, reason, unreachable=True)

    def _member_gone(self, role: Role, rank: int, reason: str, unreachable: bool = False) -> None:
        if (role, rank) in self._gone:  # every connection and every operation tells
            return
        self._gone.add((role, rank))
        config, patience_s = self._config, VERDICT_S
        whom = Whom(role, rank, self._hosts[role][rank])
        if unreachable:
            # The scheduler waits for a sign of life of the other end, or for the end of its patience.
            patience_s += config.heartbeat_timeout_s + 2 * config.heartbeat_interval_s
            self.control.report(Unreachable(role, rank, reason))
        else:
            self.control.report(Lost(role, rank, whom.host, reason[:1_000]))
        verdict = threading.Timer(patience_s, self._on_lost, (loss(whom, reason),))
        verdict.daemon = True
        verdict.start()
