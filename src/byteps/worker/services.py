"""What rank 0 of a job on one machine starts before it registers: a scheduler, and a server if one is needed.

They are processes and not threads: they must not wait for rank 0's GIL, and they outlive a rank 0 that
finishes first. Each has a session of its own, no standard input, and rank 0's output. Nobody stops them: the
scheduler ends when all ranks have left or one is lost, and the server ends with the scheduler. Before the job
has formed there is a line to each of them (``byteps.control.starter``), so that neither side waits for a
dead one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from byteps.config import Config
from byteps.control import blame, tasks
from byteps.control.shortage import explained, is_shortage
from byteps.control.starter import MAX_WORDS_BYTES
from byteps.errors import JoinError
from byteps.observe.text import clean

__all__ = ["Command", "Service", "abandon", "beside", "commands", "spawn", "start", "started"]

T = TypeVar("T")

LISTEN_FD = "BYTEPS_LISTEN_FD"
STARTER_FD = "BYTEPS_STARTER_FD"
BLAME = "BYTEPS_BLAME"  # they share the pipe of this rank: the launcher should hear what the scheduler knows
_CHECK = "check that Python can start processes here"
GRACE_S = 0.5  # what a scheduler told its members before it ended is a better reason than its end


@dataclass(frozen=True)
class Command:
    """One process to start."""

    role: str
    argv: tuple[str, ...]
    env: Mapping[str, str]  # all of it
    fds: tuple[int, ...] = ()  # handed over: inherited by this process and closed in ours


@dataclass(frozen=True)
class Service:
    """One process that was started, and the near end of the line to it."""

    role: str
    process: subprocess.Popen[bytes]
    line: socket.socket


# Of this process. Kept after their membership: they may run for longer, and have to be collected.
_started: list[Service] = []


def commands(config: Config, environ: Mapping[str, str], python: str) -> list[Command]:
    """What this rank has to start; pure. Nothing on the other ranks, and nothing in other jobs.

    >>> from byteps.config import load
    >>> environ = {"BYTEPS_LOCAL_SIZE": "2", "BYTEPS_ENABLE_IPC": "0"}
    >>> [command.role for command in commands(load(environ), environ, "python")]
    ['scheduler', 'server']
    """
    if not config.serverless or config.local_rank != 0:
        return []
    common = {name: text for name, text in environ.items() if name not in (LISTEN_FD, STARTER_FD)}
    # A file of the user named like a standard module must not break ours, as in the launcher.
    common |= {"PYTHONSAFEPATH": "1", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": str(config.num_server)}

    def command(role: str, listen_fd: int | None = None) -> Command:
        own = {"DMLC_ROLE": role} | ({} if listen_fd is None else {LISTEN_FD: str(listen_fd)})
        fds = () if listen_fd is None else (listen_fd,)
        return Command(role, (python, "-m", f"byteps.{role}"), {**common, **own}, fds)

    found = [command("scheduler", config.listen_fd)]
    return [*found, command("server")] if config.needs_own_server else found


def start(config: Config, *, suspended: bool) -> list[Service]:
    """Start what this rank has to start; JoinError when that fails.

    A ``suspended`` process finds its scheduler where it left it, whoever had started that.
    """
    if suspended:
        return list(_started)
    config = replace(config, listen_fd=_inherited(config))
    wanted = commands(config, os.environ, sys.executable)
    if not wanted:
        return []
    _collect_earlier(config.connect_timeout_s)
    try:
        for each in wanted:
            _started.append(spawn(each))
    except BaseException:
        abandon()
        raise
    if config.listen_fd is not None:
        os.environ.pop(
            LISTEN_FD, None
        )  # it is the scheduler's now, and the number may be somebody else's soon
    return list(_started)


def started(role: str) -> Service | None:
    """The process with this role that this rank has started, if it has."""
    return next((service for service in _started if service.role == role), None)


def abandon() -> None:
    """This rank gives up: what it has started ends by itself, unless the job runs already."""
    for service in _started:
        service.line.close()


async def beside(started: Sequence[Service], work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``, but give up when one of these processes ends: nobody would start it again."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[JoinError] = loop.create_future()
    lines = [service.line for service in started if service.line.fileno() >= 0]
    for service in started:
        if service.line in lines:
            loop.add_reader(service.line, _hearing(service, ended))
    task = asyncio.ensure_future(work)
    both: set[asyncio.Future[Any]] = {task, ended}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait({task}, timeout=GRACE_S)
        if not task.done():
            raise ended.result()
        return task.result()
    finally:
        for line in lines:
            loop.remove_reader(line)
        if not task.done():
            await tasks.end(task)


def _hearing(service: Service, ended: asyncio.Future[JoinError]) -> Callable[[], None]:
    """What to do when the line is readable: gather words until its end."""
    words = bytearray()

    def heard() -> None:
        try:
            piece = service.line.recv(MAX_WORDS_BYTES)
        except BlockingIOError:
            return
        words.extend(piece)
        if not piece:
            asyncio.get_running_loop().remove_reader(service.line)
            said = clean(words.decode(errors="replace"))
            reason = said or "it did not say why; look at its last lines of output"
            text = f"init: the {service.role} of this job, which this rank had started, has ended: {reason}"
            if not ended.done():
                ended.set_result(JoinError(text))

    return heard


def _inherited(config: Config) -> int | None:
    """The listening socket, if it is really there: a program between the launcher and us may close it."""
    if config.listen_fd is None:
        return None
    try:
        with socket.socket(fileno=os.dup(config.listen_fd)) as sock:
            return config.listen_fd if sock.getsockname()[1] == config.root_port else None
    except (OSError, IndexError):  # closed, or some other file now; the port is free then, and can be bound
        return None


def _collect_earlier(timeout_s: float) -> None:
    """Wait for the end of what an earlier membership has started: it holds the port."""
    while _started:
        service = _started[-1]
        try:
            service.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise JoinError(
                f"init: the {service.role} of the job that this rank left still runs after {timeout_s:g} s "
                "(BYTEPS_CONNECT_TIMEOUT_S); all ranks must call shutdown() before one calls init() again"
            ) from None
        service.line.close()
        _started.pop()


def spawn(command: Command) -> Service:
    """Start one process with a line to it; JoinError when that fails."""
    ours: socket.socket | None = None
    pipe = blame.descriptor(command.env.get(BLAME, ""))
    shared = () if pipe is None else (pipe,)
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                command.argv,
                env={**command.env, STARTER_FD: str(theirs.fileno())},
                stdin=subprocess.DEVNULL,
                pass_fds=(*command.fds, theirs.fileno(), *shared),
                start_new_session=True,  # signals for rank 0 and its terminal are not for them
            )
    except OSError as error:
        if ours is not None:
            ours.close()
        why = explained(error) if is_shortage(error) else f"{error.strerror}; {_CHECK}"
        raise JoinError(
            f"init: cannot start the {command.role} of this job with {command.argv[0]!r}: {why}"
        ) from None
    for fd in command.fds:
        os.close(fd)
    ours.setblocking(False)
    return Service(command.role, process, ours)
