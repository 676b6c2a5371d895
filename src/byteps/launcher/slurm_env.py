"""What one task of a Slurm step runs, from the variables that srun sets. Pure.

Every task is one or more ranks of the worker machine that its node is. Servers come on top: one on every
node by default, started by the first task of the node; the first task of the first node also starts the
scheduler. With ``--server-nodes K`` the last K nodes have servers only, one for every task. A step on one
node needs neither: its first rank starts what it needs.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Mapping

from byteps.errors import ConfigError
from byteps.launcher.share import Share
from byteps.launcher.spec import LOOPBACK

__all__ = ["counts", "expand", "in_step", "nodes_of", "share_of"]

# Below the range from which systems choose ports by themselves; two in a row for every step.
_PORTS = range(12_000, 28_000, 2)


def in_step(environ: Mapping[str, str]) -> bool:
    """Whether srun has started this process; a batch script, or a shell of salloc, is not in a step."""
    return bool(environ.get("SLURM_STEP_NODELIST") and environ.get("SLURM_LOCALID"))


def expand(text: str) -> list[str]:
    """The names that a list of Slurm stands for, in its order.

    >>> expand("login,n[1-3,07]")
    ['login', 'n1', 'n2', 'n3', 'n07']
    """
    found = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = re.split(r"\[([^\]]*)\]", word)  # plain, ranges, plain, ranges, ..., plain
        choices = [[part] if k % 2 == 0 else _ranges(part, text) for k, part in enumerate(parts)]
        found += ["".join(each) for each in itertools.product(*choices)]
    if not found or any(c in name for name in found for c in "[]") or text.count("[") != text.count("]"):
        raise ConfigError(f"SLURM_STEP_NODELIST={text!r} does not parse: expected a list such as n[1-3,7]")
    return found


def _ranges(text: str, whole: str) -> list[str]:
    found = []
    for word in text.split(","):
        first, _, last = word.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            raise ConfigError(f"SLURM_STEP_NODELIST={whole!r} does not parse: {word!r} is not a range")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found


def counts(text: str) -> list[int]:
    """Numbers of tasks, of every node.

    >>> counts("2(x3),1")
    [2, 2, 2, 1]
    """
    found: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word)
        if match is None:
            raise ConfigError(
                f"SLURM_STEP_TASKS_PER_NODE={text!r} does not parse: expected for example 2(x3),1"
            )
        found += [int(match[1])] * int(match[2] or 1)
    return found


def nodes_of(environ: Mapping[str, str]) -> list[str]:
    """The nodes of the step."""
    return expand(_needed(environ, "SLURM_STEP_NODELIST"))


def share_of(
    environ: Mapping[str, str],
    *,
    nproc: int = 1,
    servers: int | None = None,
    server_nodes: int = 0,
    root_uri: str = "",
    secret: str = "",
) -> Share:
    """What the task with this environment runs. ``root_uri``: the address of the first node."""
    nodes = nodes_of(environ)
    tasks = counts(_needed(environ, "SLURM_STEP_TASKS_PER_NODE"))
    if len(tasks) != len(nodes):
        raise ConfigError(
            f"SLURM_STEP_TASKS_PER_NODE names {len(tasks)} nodes and SLURM_STEP_NODELIST {len(nodes)}"
        )
    node, task = _number(environ, "SLURM_NODEID"), _number(environ, "SLURM_LOCALID")
    if node >= len(nodes) or task >= tasks[node]:
        raise ConfigError(
            f"task {task} of node {node} is not in a step of {tasks} tasks; is SLURM_* inherited?"
        )
    if not 0 <= server_nodes < len(nodes):
        raise ConfigError(
            f"--server-nodes {server_nodes}: expected less than the {len(nodes)} nodes of the step"
        )
    if server_nodes and servers is not None:
        raise ConfigError("--servers and --server-nodes are both given; keep one")
    machines = len(nodes) - server_nodes
    job, step = environ.get("SLURM_JOB_ID", "0"), environ.get("SLURM_STEP_ID", "0")
    root_port, master_port = _ports(environ, job, step)
    own: tuple[int, ...] = ()
    if server_nodes:
        total = sum(tasks[machines:])
        own = (sum(tasks[machines:node]) + task,) if node >= machines else ()
    else:
        total = (machines if machines > 1 else 0) if servers is None else servers
        own = tuple(k for k in range(total) if k % machines == node) if task == 0 else ()
    if machines > 1 and total < 1:
        raise ConfigError(f"--servers {total}: a step on {machines} nodes needs at least 1")
    working = node < machines
    return Share(
        sizes=tuple(count * nproc for count in tasks[:machines]),
        machine=node if working else 0,
        ranks=tuple(range(task * nproc, (task + 1) * nproc)) if working else (),
        servers=total,
        own_servers=own,
        scheduler=node == 0 and task == 0,
        root_uri=LOOPBACK if len(nodes) == 1 else root_uri or nodes[0],
        root_port=root_port,
        master_port=master_port,
        job_id=f"slurm-{job}-{step}",
        launch_id=f"slurm-{job}-{step}-{environ.get('SLURM_RESTART_COUNT') or 0}",
        secret=secret,
    )


def _ports(environ: Mapping[str, str], job: str, step: str) -> tuple[int, int]:
    """Of the scheduler and of torch.distributed: as told, reserved by Slurm, else from the step's number."""
    if environ.get("DMLC_PS_ROOT_PORT"):
        port = _number(environ, "DMLC_PS_ROOT_PORT")
        return port, port + 1
    if reserved := environ.get("SLURM_STEP_RESV_PORTS"):
        found = [int(each) for each in expand(f"[{reserved}]")]
        return found[0], found[-1] if len(found) > 1 else found[0] + 1
    port = _PORTS[zlib.crc32(f"{job}.{step}".encode()) % len(_PORTS)]
    return port, port + 1


def _needed(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        raise ConfigError(f"--slurm: {name} is not set; start the command with srun or sbatch, which set it")
    return environ[name]


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _needed(environ, name)
    if not text.isdecimal():
        raise ConfigError(f"{name}={text!r} does not parse: expected a number")
    return int(text)
