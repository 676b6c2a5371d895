"""What every way to launch puts its plans together from. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from byteps.config import Config, load
from byteps.launcher import rendezvous
from byteps.launcher.spec import Facts, ProcessSpec

__all__ = [
    "IDENTITY",
    "LAUNCH_ID",
    "PLACE",
    "SAFE",
    "label",
    "listening",
    "load_without",
    "module",
    "place",
    "server_port",
    "unbuffered",
]

# What describes a place in some job. A process of a new job never inherits it.
IDENTITY = ("BYTEPS_JOB_ID", "BYTEPS_JOB_SECRET", "BYTEPS_JOB_SECRET_FILE")
LAUNCH_ID = "BYTEPS_LAUNCH_ID"  # new in every launch, whatever of the rest the user has set
PLACE = frozenset(
    (
        *("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_WORKER_ID"),
        *("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_INTERFACE", "DMLC_NODE_HOST", "BYTEPS_LISTEN_FD"),
        *("BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE", "BYTEPS_GLOBAL_RANK", "BYTEPS_FORCE_DISTRIBUTED"),
        *IDENTITY,
        LAUNCH_ID,
        *rendezvous.NAMES,
    )
)

SAFE = {"PYTHONSAFEPATH": "1"}  # a file of the user named like a standard module must not break ours


def label(sizes: Sequence[int], machine: int, rank: int) -> str:
    """How the output of a rank is marked: by its rank in the job, as everybody else calls it.

    >>> label([2, 2], 1, 0)
    'worker 2'
    """
    return f"worker {sum(sizes[:machine]) + rank}"


def place(sizes: list[int], machine: int, rank: int) -> dict[str, str]:
    """Where a rank of a machine stands in its job, given the number of ranks of every machine."""
    return {
        "DMLC_WORKER_ID": str(machine),
        "BYTEPS_LOCAL_RANK": str(rank),
        "BYTEPS_LOCAL_SIZE": str(sizes[machine]),
        **rendezvous.place(sizes, machine, rank),
    }


def listening(spec: ProcessSpec, facts: Facts) -> ProcessSpec:
    """The same process with the job's listening socket."""
    fds = (int(facts.listen_fd),) if facts.listen_fd.isdigit() else ()
    return replace(spec, env={**spec.env, "BYTEPS_LISTEN_FD": facts.listen_fd}, fds=fds)


def load_without(environ: Mapping[str, str], without: Iterable[str] = ()) -> Config:
    """The settings; never the secret's file, which is for the processes that need it to read."""
    hidden = {*without, "BYTEPS_JOB_SECRET_FILE"}
    return load({name: value for name, value in environ.items() if name not in hidden})


def module(facts: Facts, role: str) -> tuple[str, ...]:
    return (facts.python, "-m", f"byteps.{role}")


def server_port(config: Config, root_port: int | str, index: int) -> dict[str, str]:
    """With BYTEPS_SINGLE_PORT, where the server with this ``index`` among those of a machine listens.

    >>> from byteps.config import load
    >>> server_port(load({"BYTEPS_SINGLE_PORT": "1"}), 9000, 1), server_port(load({}), 9000, 1)
    ({'DMLC_PORT': '9002'}, {})
    """
    chosen = config.single_port and config.port == range(1) and str(root_port).isdigit()
    return {"DMLC_PORT": str(int(root_port) + 1 + index)} if chosen else {}


def unbuffered(environ: Mapping[str, str]) -> dict[str, str]:
    """Output through a pipe would else come late, and the last lines before a crash never."""
    return {} if "PYTHONUNBUFFERED" in environ else {"PYTHONUNBUFFERED": "1"}
