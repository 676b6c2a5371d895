"""The vocabulary of a plan, data only: what was asked for, what is known of the machine, what to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from byteps.config import Config

__all__ = ["LOOPBACK", "UNKNOWN", "Facts", "Options", "Plan", "ProcessSpec"]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line; None where nothing was said."""

    command: tuple[str, ...] = ()
    workers: int | None = None  # machines
    servers: int | None = None
    nproc: int | tuple[int, ...] | None = None  # ranks per machine, or of each machine


@dataclass(frozen=True)
class Facts:
    """What only the machine, or chance, can tell; gathered by the caller so that ``plan`` stays pure."""

    python: str  # the interpreter that runs scheduler and servers
    root_port: str  # of the scheduler's listening socket, already bound, so that no other program can take it
    listen_fd: str  # that socket's descriptor, inherited by the scheduler
    job_id: str
    secret: str = field(repr=False)
    launch_id: str
    master_port: str = "(a free port)"  # kept free for the store of torch.distributed, which rank 0 may start
    root_uri: str = LOOPBACK  # where the others reach the scheduler
    master_addr: str = LOOPBACK  # where the others reach worker 0


# For a dry run, and to find mistakes in options and environment before anything is opened.
_MADE = "(made for every job)"
UNKNOWN = Facts("python", "(a free port)", "(a socket)", job_id=_MADE, secret=_MADE, launch_id=_MADE)


@dataclass(frozen=True)
class ProcessSpec:
    """One process to start."""

    label: str  # how its output is marked: "worker 0"
    role: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # set on top of the launcher's own environment
    drop: frozenset[str] = frozenset()  # names it does not inherit from there
    stdin: bool = False  # whether it gets the launcher's standard input; the others read nothing
    fds: tuple[int, ...] = ()  # handed over: inherited by this process and closed in the launcher
    cpus: tuple[int, ...] = ()  # the processors it is bound to; none: as the launcher
    memory_node: int | None = None  # the NUMA node that its memory should come from
    debugged: bool = False  # runs under gdb: signals are for the command, not for gdb
    host: str = ""  # where it runs; empty: on this machine

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Everything the process sees, given the launcher's environment."""
        kept = {name: value for name, value in inherited.items() if name not in self.drop}
        return {**kept, **self.env}


@dataclass(frozen=True)
class Plan:
    """What to run, and why. ``in_process``: the one process is this one, nothing is started."""

    config: Config
    processes: tuple[ProcessSpec, ...] = ()
    in_process: bool = False
    note: str = ""
