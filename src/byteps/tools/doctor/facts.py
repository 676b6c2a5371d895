"""Probes of this machine for ``bps doctor``: each asks the system one thing and judges nothing."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from byteps.config import Config
from byteps.control.address import listen
from byteps.control.meeting import folder
from byteps.errors import BytePSError

__all__ = ["Limit", "Machine", "gather"]

_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised


@dataclass(frozen=True)
class Limit:
    """A resource limit; None: unlimited."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class Machine:
    """What was found; None where the system does not tell."""

    host: str
    own_address: str | None  # of the host's name
    cpus: int
    cpu_time: float | None  # processors' worth of time that a control group allows
    open_files: Limit
    locked_bytes: Limit
    shm_bytes: int | None  # size of /dev/shm
    shm_free_bytes: int | None
    reads_memory: bool | None  # a process may read another one of the same user
    ptrace_scope: str
    socket_folder_error: str
    own_port_error: str  # of DMLC_PORT
    clock_synchronised: bool | None


def gather(config: Config) -> Machine:
    """Ask the system."""
    from byteps.launcher import topology

    machine = topology.read()
    shm = _space(Path("/dev/shm"))
    host = socket.gethostname()
    return Machine(
        host=host,
        own_address=_address(host),
        cpus=len(machine.cpus),
        cpu_time=machine.quota_cpus,
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        shm_bytes=shm and shm[0],
        shm_free_bytes=shm and shm[1],
        reads_memory=_reads_memory(),
        ptrace_scope=_text(Path("/proc/sys/kernel/yama/ptrace_scope")),
        socket_folder_error=_socket_folder_error(config),
        own_port_error=_own_port_error(config),
        clock_synchronised=_clock_synchronised(),
    )


def _limit(which: int) -> Limit:
    soft, hard = (None if value == resource.RLIM_INFINITY else value for value in resource.getrlimit(which))
    return Limit(soft, hard)


def _space(path: Path) -> tuple[int, int] | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


def _address(host: str) -> str | None:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None


def _reads_memory() -> bool | None:
    try:
        from byteps.tools.machine_facts import a_child_can_read_us

        return a_child_can_read_us()
    except (ImportError, OSError):  # no native core: a finding of its own
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _socket_folder_error(config: Config) -> str:
    try:
        found = folder(config.socket_path)
    except BytePSError as error:
        return str(error)
    return "" if os.access(found, os.W_OK | os.X_OK) else f"{found} cannot be written to"


def _own_port_error(config: Config) -> str:
    try:
        listen("0.0.0.0", config.server_ports, "DMLC_PORT").close()
    except (OSError, BytePSError) as error:
        return str(error)
    return ""


def _clock_synchronised() -> bool | None:
    if sys.platform != "linux":
        return None
    try:
        state: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # modes 0: only look
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != _TIME_ERROR
