"""Starts processes on this machine, and gathers what a plan needs to know of it."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from byteps.config import VARIABLES, load
from byteps.control.listening import BACKLOG, bound
from byteps.control.shortage import explained
from byteps.launcher import binding, gdb, topology
from byteps.launcher.memory_policy import prefer
from byteps.launcher.plan import LOOPBACK, UNKNOWN, Facts, ProcessSpec
from byteps.launcher.reap import die_with

__all__ = ["StartError", "bind", "facts", "listen", "made_facts", "open_standard_fds", "prepare", "reserve"]
__all__ += ["start", "start_error", "stdin_is_ours"]

LAUNCHER_VARIABLES = frozenset(name for name, row in VARIABLES.items() if row.group == "Launcher")

COMMAND_NOT_EXECUTABLE = 126  # as a shell says it
COMMAND_NOT_FOUND = 127


class StartError(Exception):
    """A process could not be started; ``code`` is the exit code that a shell would use."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def prepare(specs: Sequence[ProcessSpec], environ: Mapping[str, str]) -> tuple[tuple[ProcessSpec, ...], str]:
    """The processes of a plan as this machine runs them, and how: on which cores, and under gdb if asked for.

    The supervisor does this by itself before it starts them; a dry run does it to show the result.
    ConfigError when the settings ask for cores or programs that are not here.
    """
    config = load({name: environ[name] for name in LAUNCHER_VARIABLES if name in environ})
    placed, note = binding.apply(specs, config, topology.read(), environ)
    if config.enable_gdb:
        placed = [gdb.wrapped(spec, environ) if spec.role == "worker" else spec for spec in placed]
    return tuple(placed), note


def bind(port: int = 0) -> socket.socket:
    """The scheduler's socket; bound here and inherited, so nobody can take the port in between."""
    # The port can be bound once more, should a program between us and rank 0 have kept the socket.
    return bound(LOOPBACK, port)


def reserve(port: int = 0) -> socket.socket:
    """A port that nobody else is given while the socket is open, and that rank 0 can bind all the same.

    PyTorch's store takes a number and no socket. Like ours, its socket allows the reuse of the address, and
    so Linux lets both have it, because this one does not listen.
    """
    return bound("", port)  # all addresses, as the store does


def listen(sock: socket.socket, specs: Iterable[ProcessSpec]) -> bool:
    """Whether one of these processes gets the socket; listens for it if it will accept at once.

    A rank 0 that starts its scheduler may take minutes until then: its peers should be refused and try again,
    rather than wait for an answer and leave their dead connections behind.
    """
    owners = [spec for spec in specs if sock.fileno() in spec.fds]
    if any(spec.role == "scheduler" for spec in owners):
        sock.listen(BACKLOG)
    return bool(owners)


def facts(listener: socket.socket) -> Facts:
    """What a plan for this machine needs; job id and secret are new every time."""
    made = made_facts()
    return replace(made, root_port=str(listener.getsockname()[1]), listen_fd=str(listener.fileno()))


def made_facts() -> Facts:
    """What does not depend on a socket of this machine: a new job id, a new secret, a new launch id."""
    return replace(
        UNKNOWN,
        python=sys.executable,
        job_id=secrets.token_hex(8),
        secret=secrets.token_hex(32),
        launch_id=secrets.token_hex(8),
    )


def open_standard_fds() -> None:
    """Let descriptors 0 to 2 exist: else the next pipe or socket would take their place, and our output."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:  # opening gives the lowest free number, which is this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def stdin_is_ours() -> bool:
    """Whether a child may read our standard input: it is open, and not a terminal that someone else is using.

    To be asked before the session changes: a background job must not steal what is typed at the shell.
    """
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def start(
    spec: ProcessSpec, inherited: Mapping[str, str], *, stdin: bool, out: int | None, err: int | None
) -> int:
    """Start a process in a session of its own and return its pid; the caller collects it.

    ``out`` and ``err`` are descriptors for its output (None: as ours). Must be called from a process with one
    thread: the child runs a little Python between fork and exec, to ask the kernel to die with us. A wrapper
    program would be safe with threads too, but would cost an interpreter start for every process of a job.
    """
    parent = os.getpid()
    try:
        process = subprocess.Popen(
            spec.argv,
            env=spec.environment(inherited),
            stdin=None if stdin and spec.stdin else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=spec.fds,
            start_new_session=True,  # its whole group can be signalled, and Ctrl-C does not reach it twice
            preexec_fn=lambda: _settle(spec, parent),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise start_error(spec, error) from None
    process.returncode = 0  # it is collected by pid, together with orphans; this object must not wait for it
    return process.pid


def _settle(spec: ProcessSpec, parent: int) -> None:
    """In the new process, before its program runs: die with us, and take the place that was planned."""
    die_with(parent)
    if spec.cpus:
        os.sched_setaffinity(0, spec.cpus)
    if spec.memory_node is not None:
        prefer(spec.memory_node)


def start_error(spec: ProcessSpec, error: Exception) -> StartError:
    """Why a process could not be started, and the code that a shell would use."""
    command = spec.argv[0]
    number = error.errno if isinstance(error, OSError) else 0
    if number == errno.ENOENT:
        text = f"command not found: {command!r}; {_script_hint(command) or 'check its spelling and PATH'}"
        return StartError(f"{spec.label}: {text}", COMMAND_NOT_FOUND)
    if number in (errno.EACCES, errno.ENOEXEC):
        hint = _script_hint(command) or "is it executable, does it begin with #! ?"
        text = f"{command!r} is not a program that can be run; {hint}"
        return StartError(f"{spec.label}: {text}", COMMAND_NOT_EXECUTABLE)
    why = explained(error) if isinstance(error, OSError) else error
    return StartError(f"{spec.label}: {command!r} could not be started: {why}", COMMAND_NOT_EXECUTABLE)


def _script_hint(command: str) -> str:
    return f"did you mean: bpslaunch python {command}" if command.endswith(".py") else ""
