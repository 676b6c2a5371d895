"""What this process knows of jobs that it has left: which it may come back to, and which are over.

A client that left with ``shutdown()`` or ``suspend()`` keeps its connection, so that the scheduler sees
whether the process lives on, until the next membership has begun or the process ends.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from byteps.errors import JoinError

if TYPE_CHECKING:
    from byteps.config import Config
    from byteps.worker.control import ControlClient

__all__ = ["forget_in_child", "is_expected", "let_go", "remember_end", "require_a_job", "stay"]

_clients: list[ControlClient] = []
_lock = threading.Lock()
_over: dict[str, str] = {}  # launches whose jobs have ended while this process was in them: why


def stay(client: ControlClient) -> None:
    """This one has left, and keeps its connection."""
    with _lock:
        _clients.append(client)


def is_expected() -> bool:
    """Whether a scheduler keeps a place for this process: then nobody has to start another one."""
    with _lock:
        return any(client.is_connected() for client in _clients)


def let_go() -> None:
    """This process comes back to none of the jobs that it has left."""
    with _lock:
        gone = _clients.copy()
        _clients.clear()
    for client in gone:
        client.close()


def forget_in_child() -> tuple[list[int], object]:
    """In a forked child: the sockets to let go of, and what must never be destroyed there."""
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    kept = _clients.copy()
    _clients.clear()
    return [fd for client in kept for fd in client.inherited_fds()], kept


def remember_end(config: Config, why: str) -> None:
    """The job has ended, while this process was in it or wanted to come back."""
    if config.launch_id:
        _over.setdefault(config.launch_id, why)


def require_a_job(config: Config) -> None:
    """JoinError if nobody will start the scheduler again: rank 0 does on one machine, a launcher does not."""
    if config.launch_id in _over and not config.serverless:
        raise JoinError(
            "init: the job that this process was in has ended, and with it the scheduler and the servers "
            f"that were launched for it: {_over[config.launch_id]}; start the job again"
        )
