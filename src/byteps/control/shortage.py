"""When a process gets no file descriptor or thread any more: what to say, and how services get more of them.

Every lack of one ends in ``explained``: the limit, what is needed, and the remedy.
"""

from __future__ import annotations

import errno
import os
import resource

from byteps.config import Config

__all__ = ["NO_MEMORY", "ensure", "explained", "is_shortage", "needed", "take_all"]

NO_MEMORY = "this process has no memory left; give it more"  # where Python says no more than MemoryError
LOOP = 4  # descriptors that an asyncio loop begins with, and one more
_OWN = 32  # event loops, eventfds, standard streams and the like
_CONNECTIONS = 3  # of a member with the scheduler: control, and two for heartbeats
_SHARDS = 4  # of a server, if nobody says otherwise
_OBSERVERS = 64


def is_shortage(error: BaseException) -> bool:
    """Whether it failed for want of a descriptor. Trying again helps only when somebody closes one."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def explained(error: OSError, needs: int = 0) -> str:
    """The system's words; for a shortage also the limit, what would be enough, and the remedy."""
    words = os.strerror(error.errno or 0)
    if error.errno == errno.EAGAIN:  # only threads: nothing of ours that leaves the process blocks
        return (
            f"{words}: no thread could be started; raise ulimit -u, ulimit -v, or pids.max of the container"
        )
    if not is_shortage(error):
        return str(error)
    if error.errno == errno.ENFILE:
        return f"{words}: the whole machine has none left; raise it there: sysctl -w fs.file-max=1000000"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "" if hard in (soft, resource.RLIM_INFINITY) else f", the hard limit is {hard}"
    enough = f", and needs about {needs} for its part in the job" if needs else ""
    return (
        f"{words}: this process uses all {soft} descriptors that it may have (ulimit -n{most}){enough}; "
        f"raise the limit where it is started: ulimit -n {max(65_536, 2 * needs)} "
        "(docker: --ulimit nofile=65536, systemd: LimitNOFILE=65536)"
    )


def needed(config: Config) -> int:
    """Roughly how many descriptors a process of this role needs, besides those of its own program; pure.

    >>> from byteps.config import load
    >>> needed(load({"DMLC_ROLE": "server", "DMLC_NUM_WORKER": "300", "BYTEPS_SERVER_ENGINE_THREAD": "4"}))
    1232
    """
    ranks = config.num_worker * config.local_size
    if config.role == "scheduler":
        return _OWN + _CONNECTIONS * (ranks + config.num_server) + _OBSERVERS
    if config.role == "server":
        return _OWN + ranks * config.server_engine_thread
    return _OWN + _SHARDS * config.num_server + 2 * config.local_size


def ensure(count: int) -> None:
    """Raise the OSError of a shortage unless so many descriptors are free now.

    For what leaves a mess when it gets half of what it needs: asyncio prints a traceback for a loop that it
    could not make.
    """
    taken = []
    try:
        for _ in range(count):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in taken:
            os.close(fd)


def take_all() -> None:
    """Raise this process's own limit to the most it may have: a service of ours, which starts nothing.

    A rank's limit is its program's business; programs that use ``select`` cannot live with high numbers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # the kernel's own limit (fs.nr_open) is lower: leave it
        pass
