"""Which options every way to launch acts on; one that would do nothing is refused by name. Pure.

A way that learns to act on an option gets its name into the row of the table; a test walks over all of them.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byteps.launcher.spec import ProcessSpec

__all__ = ["HERE", "K8S", "NODES", "RAY", "ROLE", "SLURM", "SSH", "TABLE", "check", "option"]
__all__ += ["parse", "refuse_overruled"]

HERE = "this machine"
ROLE = "one role of a job, which DMLC_ROLE names"
SSH = "-H or --hostfile"
SLURM = "--slurm"
RAY = "--ray"
K8S = "--k8s"
NODES = "--nnodes"

_ALL = (HERE, ROLE, SSH, SLURM, RAY, K8S, NODES)
_LAUNCHED = (HERE, ROLE, SSH, SLURM, RAY, NODES)  # whose processes bpslaunch itself supervises

# By the name that argparse gives to the value of an option. A server or scheduler that DMLC_ROLE names has
# no ranks and no command: -n is for the workers of the same line, which many write once for all roles.
TABLE: dict[str, tuple[str, ...]] = {
    "nproc": _ALL,
    "np": (HERE, SSH),
    "workers": (HERE, RAY, K8S),
    "servers": (HERE, SSH, SLURM, RAY, K8S, NODES),
    "log_dir": _LAUNCHED,
    "trace": _LAUNCHED,
    "dashboard": (HERE,),
    "grace": _ALL,
    "dry_run": _ALL,
    "env": _ALL,
    "chdir": _ALL,
    "python": (SSH, RAY),
    "scheduler_port": (HERE, SSH, SLURM, RAY, K8S),
    **dict.fromkeys(("hosts", "hostfile", "worker_hostfile", "scheduler_ip"), (SSH,)),
    **dict.fromkeys(("server_hosts", "server_hostfile", "old_server_hostfile"), (SSH,)),
    **dict.fromkeys(("ssh", "ssh_user", "ssh_port"), (SSH,)),
    **dict.fromkeys(("slurm", "server_nodes"), (SLURM,)),
    **dict.fromkeys(("ray", "ray_address", "ray_strategy", "ray_timeout"), (RAY,)),
    **dict.fromkeys(("cpus_per_worker", "gpus_per_worker", "cpus_per_server"), (RAY,)),
    **dict.fromkeys(("k8s", "name", "namespace", "server_image", "restarts", "secret_name"), (K8S,)),
    **dict.fromkeys(("cpus", "memory", "gpus", "shm", "server_cpus", "server_memory"), (K8S,)),
    **dict.fromkeys(("nnodes", "node_rank", "master_addr", "master_port"), (HERE, NODES)),
    "standalone": (HERE,),
}

_WRITTEN = {"nproc": "-n", "np": "-np", "hosts": "-H", "old_server_hostfile": "-SH"}
_PHRASES = {HERE: "on this machine", ROLE: f"for {ROLE}"}
_REMEDIES = {
    ("workers", SSH): "-H names the machines; keep one",
    ("workers", SLURM): "nodes and tasks say how many there are",
    ("workers", NODES): "--nnodes says how many machines there are",
    ("scheduler_port", ROLE): "set DMLC_PS_ROOT_PORT, the same everywhere",
    ("scheduler_port", NODES): "--master-port is the port of the scheduler",
    ("scheduler_ip", ROLE): "set DMLC_PS_ROOT_URI, the same everywhere",
    ("scheduler_ip", NODES): "--master-addr is where the scheduler is",
    ("master_port", ROLE): "set MASTER_PORT, the same everywhere",
    ("master_addr", ROLE): "set MASTER_ADDR, the same everywhere",
    ("cpus", HERE): "BYTEPS_VISIBLE_CPU_CORES gives cores to ranks, taskset to all of a job",
    ("cpus", RAY): "--cpus-per-worker reserves CPUs",
    ("gpus", RAY): "--gpus-per-worker reserves GPUs",
    ("gpus", HERE): "NVIDIA_VISIBLE_DEVICES names them",
    ("python", HERE): "name the interpreter in the command",
    ("python", ROLE): "name the interpreter in the command",
    ("python", SLURM): "name the interpreter in the command",
    ("python", NODES): "name the interpreter in the command",
    ("python", K8S): "the image has the interpreter",
    ("trace", K8S): "set BYTEPS_TRACE_ON=1 and BYTEPS_TRACE_DIR, a folder of a volume, with --env",
    ("log_dir", K8S): "kubectl logs has the output of every pod",
    **{("np", way): "give the ranks of a machine with -n" for way in (ROLE, SLURM, RAY, K8S, NODES)},
}


def option(name: str) -> str:
    """How an option is written.

    >>> option("scheduler_port")
    '--scheduler-port'
    """
    return _WRITTEN.get(name, "--" + name.replace("_", "-"))


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> tuple[argparse.Namespace, frozenset[str]]:
    """The arguments, and the names of the options that were given, also of those given as they are anyway."""
    defaults = vars(parser.parse_args([]))
    unsaid: list[object] = []  # by identity; a list, because options that may be repeated append to a copy
    args, unknown = parser.parse_known_args(argv, argparse.Namespace(**dict.fromkeys(defaults, unsaid)))
    if unknown:
        _refuse_unknown(parser, unknown[0])
    said = frozenset(name for name, value in vars(args).items() if value is not unsaid) - {"command"}
    for name, value in defaults.items():
        if getattr(args, name) is unsaid:
            setattr(args, name, value)
    return args, said


def _refuse_unknown(parser: argparse.ArgumentParser, word: str) -> None:
    given = word.partition("=")[0]
    close = difflib.get_close_matches(given, parser._option_string_actions, n=1, cutoff=0.7)
    parser.error(f"unknown option {given}" + (f"; did you mean {close[0]}?" if close else ""))


def check(said: Collection[str], way: str) -> None:
    """``ConfigError`` for an option that this way does not act on."""
    from byteps.errors import ConfigError

    problems = []
    for name in sorted(said):
        if way in TABLE[name]:
            continue
        where = _PHRASES.get(way, f"with {way}")
        remedy = _REMEDIES.get((name, way)) or f"it is for {' and '.join(TABLE[name])}"
        problems.append(f"{option(name)} does nothing {where}: {remedy}")
    if problems:
        raise ConfigError("\n".join(problems))


def refuse_overruled(
    variables: Mapping[str, str], processes: Sequence[ProcessSpec], inherited: Mapping[str, str]
) -> None:
    """``ConfigError`` for a variable of ``--env`` that no worker would see, because its launcher sets it."""
    from byteps.errors import ConfigError

    for name, value in variables.items():
        for spec in processes:
            if spec.role == "worker" and spec.environment({**inherited, **variables}).get(name) != value:
                raise ConfigError(f"--env {name}: bpslaunch itself decides what {spec.label} gets there")
