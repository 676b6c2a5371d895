"""The one session of this process: ``init``, ``shutdown``, ``suspend``, ``resume`` and what happens at exit.

Plugins and the NumPy verbs read ``current.session`` directly; it is None whenever there is no membership. A
rank that dies of an exception says so when it leaves, so that the others are told why. A forked child, such
as a data loader's worker, has no membership: it must neither end its parent's nor keep its connections
open.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from byteps.errors import ConfigError, NotInitializedError

if TYPE_CHECKING:
    from byteps.worker.session import Session

__all__ = ["init", "required", "resume", "session", "shutdown", "suspend"]

session: Session | None = None

_NEVER = "call byteps.init() first"
_why_not = _NEVER
_lock = threading.Lock()
_watching = False  # hooks of the interpreter are set
_fatal = ""  # the exception this process dies of
_launcher = ""  # BYTEPS_BLAME of the last init()
_abandoned: list[object] = []  # of a forked child; never destroyed, their threads do not exist here


def required(operation: str) -> Session:
    """The session, or an error that says why ``operation`` cannot run without one."""
    found = session
    if found is None:
        raise NotInitializedError(f"{operation}: this process is not a member of a job; {_why_not}")
    return found


def init(overrides: Mapping[str, str] | None = None) -> None:
    """Join the job that the environment describes, with ``overrides``; a second call changes nothing."""
    global session, _launcher
    with _lock:
        if session is not None:
            return
        from byteps import config
        from byteps.compress import rates
        from byteps.worker import connect, torchrun

        rates.find_session = required
        _watch_process()
        # For good: the scheduler that this rank may start inherits it, and so does a later membership.
        os.environ.update(torchrun.adopted(os.environ))
        settings = config.load({**os.environ, **(overrides or {})})
        _launcher = settings.blame
        session = connect.become_member(settings)


def shutdown(
    *,
    suspend: bool = False,
    for_good: bool = False,
    why_not: str = "it was shut down; call byteps.init() to join again",
    fatal: str = "",
) -> None:
    """Leave the job; without one, do nothing. ``fatal``: the exception that the others are told of.

    Unless it is ``for_good``, scheduler and servers stay as long as this process, for another ``init()``.
    """
    global session, _why_not
    with _lock:
        leaving, session = session, None
        if leaving is not None:
            _why_not = why_not
            reason = fatal or _fatal
            leaving.leave(suspend=suspend, for_good=for_good, failed=bool(reason), reason=reason)
        returning = sys.modules.get("byteps.worker.returning")  # a job of one never loads it
        if for_good and returning is not None:
            returning.let_go()


def _end() -> None:
    """At exit: everything is released without being asked."""
    shutdown(for_good=True)


def suspend() -> None:
    """Leave for a while; servers and scheduler keep running."""
    required("suspend")
    shutdown(suspend=True, why_not="it was suspended; call byteps.resume(num_workers, num_servers)")


def resume(num_workers: int, num_servers: int, global_rank: int | None = None) -> None:
    """Join again, perhaps as a job of another size."""
    if session is not None:
        raise ConfigError("resume: this process is a member of a job already; call byteps.suspend() first")
    from byteps import config

    overrides = {"DMLC_NUM_WORKER": str(num_workers), "DMLC_NUM_SERVER": str(num_servers)}
    if global_rank is not None:
        # The machine's index follows the rank, or it could lie outside of a job that has shrunk.
        machine = global_rank // config.load().local_size
        overrides |= {"BYTEPS_GLOBAL_RANK": str(global_rank), "DMLC_WORKER_ID": str(machine)}
    init(overrides)


def _watch_process() -> None:
    """Ask the interpreter to tell us of its end, an exception that ends it, and forks; once."""
    global _watching
    if _watching:
        return
    _watching = True
    atexit.register(_end)
    os.register_at_fork(after_in_child=_forget_in_child)
    previous = sys.excepthook

    def note_and_pass_on(
        kind: type[BaseException], value: BaseException, trace: TracebackType | None
    ) -> None:
        global _fatal
        if not hasattr(sys, "ps1"):  # at a prompt an exception is not the end
            _fatal = f"{kind.__name__}: {value}"
            if _launcher:
                _say_why(value)
        previous(kind, value, trace)

    sys.excepthook = note_and_pass_on


def _say_why(error: BaseException) -> None:
    """To the launcher, before this process leaves and the others notice. Whoever lost a peer has said so."""
    if session is not None and session.has_failed:
        return
    from byteps.control import blame

    blame.tell(_launcher, blame.words(blame.Whom("worker", 0, pid=os.getpid()), error))


def _forget_in_child() -> None:
    """In a forked child: let go of the parent's membership without ending it."""
    global session, _why_not, _lock, _launcher
    _lock = threading.Lock()  # another thread of the parent may have held it
    _launcher = ""  # its errors are not those of the rank
    inherited, session = session, None
    fds: list[int] = []
    returning = sys.modules.get("byteps.worker.returning")
    if returning is not None:  # the parent may have left, and still be connected
        fds, left = returning.forget_in_child()
        _abandoned.append(left)
    if inherited is not None:
        _abandoned.append(inherited)
        fds += inherited.inherited_fds()
        _why_not = f"it was forked from rank {inherited.rank}, and only that process may use the membership"
    if not fds:
        return
    # Peers see a process die when the last copy of its sockets closes. Replaced, not closed: whoever owns the
    # number in this copy of the memory must not close somebody else's file later.
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in fds:
        os.dup2(null, fd, inheritable=False)
    os.close(null)
