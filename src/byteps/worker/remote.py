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
from byteps.control.machines import children, piece_bytes
from byteps.control.messages import Conflict, Lost, Role, Unreachable, View
from byteps.errors import PeerLostError
from byteps.observe import logging
from byteps.observe.text import clean
from byteps.tensor.partition import aligned
from byteps.tensor.tuning import USUAL_BYTES
from byteps.worker.control import ControlClient
from byteps.worker.interface import Place
from byteps.worker.machine import Machine
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
            session = Session(config, _place(view), control, client, shares_memory=machine.shared)
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
        )
        self._names = ""  # which only some ranks have declared, as the scheduler said last
        self._waited = False  # an operation has waited for long
        self._client: _core.Client | None = None
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
            view.epoch,
            view.rank,
            credit_bytes=config.scheduling_credit * aligned(config.partition_bytes or USUAL_BYTES),
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
            piece_bytes=piece_bytes(view),
            tolerated_silence_s=config.heartbeat_timeout_s,
        )
        group = self.control.form_group(machine, view)
        if group is not None:
            client.join(group)
        for connection in self.control.open_data_connections(view):
            client.connect(*connection)
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

    def _on_departed(self, rank: int) -> None:
        self._tell(lambda _: self._depart(rank))

    def _on_names(self, text: str, crossed: bool) -> None:
        self._names = text
        self._tell(lambda session: session.names_differ(text))
        if text:  # ranks that are merely slower are no news, unless somebody waits for them
            level = logging.LEVELS["WARNING" if crossed or self._waited else "INFO"]
            logging.logger.log(level, "%s", text)

    def _depart(self, rank: int) -> None:
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
                    text += f"; {self._names}" if self._names else ""
                logging.log_native(event.number, text)
            elif event.failure is _core.FailureKind.MEMORY or not event.role:
                self._tell(functools.partial(Session.run_out, why=event.text))
            else:
                unreachable = event.failure is _core.FailureKind.UNREACHABLE
                self._member_gone(event.role, event.number, clean(event.text), unreachable)

    def _member_gone(self, role: Role, rank: int, reason: str, unreachable: bool = False) -> None:
        if (role, rank) in self._gone:  # every connection and every operation tells
            return
        self._gone.add((role, rank))
        config, patience_s = self._config, VERDICT_S
        whom = Whom(role, rank, self._hosts[role][rank])
        if unreachable:
            # The scheduler waits for a sign of life of the other end, or for the end of its patience.
            patience_s += config.heartbeat_timeout_s + 2 * config.heartbeat_interval_s
            reason += f" (PS_HEARTBEAT_TIMEOUT = {config.heartbeat_timeout_s:g})"
            self.control.report(Unreachable(role, rank, reason))
        else:
            self.control.report(Lost(role, rank, whom.host, reason[:1_000]))
        verdict = threading.Timer(patience_s, self._on_lost, (loss(whom, reason),))
        verdict.daemon = True
        verdict.start()
