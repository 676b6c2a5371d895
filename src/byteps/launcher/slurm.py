"""``bpslaunch --slurm``: the tasks of a Slurm step are the ranks of a job; nobody has to know an address.

Started by srun, each task runs its share (``slurm_env``). In a batch script, or a shell of salloc, it calls
srun for all tasks of the allocation; the secret of the job then travels in the environment, which srun passes
on. Else it is derived from a key of the user (``user_key``).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

__all__ = ["add_arguments", "asked", "run"]

_TIMEOUT_S = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this way."""
    add = parser.add_argument_group("Slurm").add_argument
    add("--slurm", action="store_true", help="every task of this Slurm step is N ranks; every node gets a "
        "server, or --servers M are dealt over the nodes")  # fmt: skip
    add("--server-nodes", metavar="K", type=int, default=0, help="the last K nodes run servers only, one for "
        "every task")  # fmt: skip


def asked(args: argparse.Namespace) -> bool:
    """Whether these options ask for this way."""
    return bool(args.slurm)


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Run this task's share, or srun."""
    from byteps.errors import ConfigError
    from byteps.launcher import nodes as machines
    from byteps.launcher import share, user_key
    from byteps.launcher.slurm_env import in_step, nodes_of, share_of

    environ = os.environ
    if not environ.get("SLURM_JOB_ID"):
        raise ConfigError(
            "--slurm: SLURM_JOB_ID is not set, so this is no job of Slurm; start it with srun or sbatch, for "
            "example: srun -N 2 --ntasks-per-node 4 bpslaunch --slurm python train.py"
        )
    if not in_step(environ):
        return _srun(args, command)
    nodes = nodes_of(environ)
    given = environ.get("BYTEPS_JOB_SECRET") or environ.get("BYTEPS_JOB_SECRET_FILE")
    secret = "" if given else user_key.secret_for(_name(environ), user_key.path_of(environ))
    port = {"DMLC_PS_ROOT_PORT": str(args.scheduler_port)} if args.scheduler_port else {}
    found = share_of(
        {**environ, **port},
        nproc=machines.ranks(args),
        servers=args.servers,
        server_nodes=args.server_nodes,
        root_uri="" if args.dry_run else _address(nodes),
        secret=secret,
    )
    return share.run(found, command, environ, sys.executable, args)


def _name(environ: Mapping[str, str]) -> str:
    """What no other step of this user is called."""
    names = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return "slurm " + " ".join(environ.get(name, "-") for name in names)


def _srun(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Become srun, which starts this command again in every task."""
    import secrets

    from byteps.errors import ConfigError

    if not command:
        raise ConfigError(
            "nothing to run: a COMMAND is needed, for example: bpslaunch --slurm python train.py"
        )
    own = ["--slurm"]
    own += ["-n", str(args.nproc)] if args.nproc is not None else []
    own += ["--servers", str(args.servers)] if args.servers is not None else []
    own += ["--server-nodes", str(args.server_nodes)] if args.server_nodes else []
    own += ["--log-dir", args.log_dir] if args.log_dir is not None else []
    own += ["--grace", str(args.grace)] if args.grace is not None else []
    own += ["--scheduler-port", str(args.scheduler_port)] if args.scheduler_port else []
    argv = ["srun", "--kill-on-bad-exit=1", sys.executable, "-m", "byteps.launcher", *own, "--", *command]
    if args.dry_run:
        import shlex

        print(shlex.join(argv))
        return 0
    if not (os.environ.get("BYTEPS_JOB_SECRET") or os.environ.get("BYTEPS_JOB_SECRET_FILE")):
        os.environ["BYTEPS_JOB_SECRET"] = secrets.token_hex(32)
    sys.stdout.flush()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise ConfigError(f"--slurm: srun cannot be started: {error.strerror}; is it in PATH?") from None


def _address(nodes: Sequence[str]) -> str:
    """Where the others reach the first node."""
    from byteps.control.address import is_loopback

    if len(nodes) == 1:
        return ""
    found = _resolve(nodes[0])
    if not is_loopback(found):
        return found
    # Many systems map a node's own name to loopback. Its address is the one it uses towards another node.
    for other in nodes[1:]:
        there = _resolve(other)
        if not is_loopback(there):
            return _towards(there)
    return found


def _resolve(node: str) -> str:
    """The address of a node, as the system knows it or else as Slurm does."""
    import socket
    import subprocess

    from byteps.errors import ConfigError

    try:
        return str(socket.getaddrinfo(node, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        pass
    why = "Slurm does not know its address either"
    try:
        done = subprocess.run(
            ["scontrol", "show", "node", "--oneliner", node],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        words = dict(word.partition("=")[::2] for word in done.stdout.split())
        if words.get("NodeAddr") and words["NodeAddr"] != node:
            return words["NodeAddr"]
    except (OSError, subprocess.TimeoutExpired) as error:
        why = f"scontrol cannot be asked: {error}"
    raise ConfigError(f"--slurm: the name of the first node, {node}, does not resolve here, and {why}")


def _towards(address: str) -> str:
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing, chooses a route
        return str(probe.getsockname()[0])
