"""``bpslaunch -H node1:4,node2:4``: a job on several machines, by ssh. Options, and how an agent is reached.

Nothing secret is in an argument: agents get the plan, with the secret of the job, over their standard input.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from byteps.launcher.arguments import address, port, variables

if TYPE_CHECKING:
    from byteps.launcher.hosts import Host
    from byteps.launcher.layout import Layout

__all__ = ["add_arguments", "asked", "command_to", "forwarded", "run"]

# What a job may need on every host; the rest of an environment belongs to its own machine.
_PASSED = ("BYTEPS_", "DMLC_", "PS_", "NCCL_", "GLOO_", "UCX_", "OMP_", "KMP_", "MKL_")
_PASSED_NAMES = ("PYTHONUNBUFFERED", "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this way."""
    group = parser.add_argument_group("several machines, by ssh")
    add = group.add_argument
    add("-H", "--hosts", metavar="HOSTS", help="worker machines with their ranks: node1:4,bob@node2:4:2222 "
        "([user@]host[:ranks[:ssh port]])")  # fmt: skip
    add("--hostfile", metavar="FILE", help="the same in a file, one in a line, also: node1 slots=4 port=2222")
    add("--server-hosts", metavar="HOSTS", help="machines for servers, node3:2 for two servers (default: one "
        "server on every worker machine; --servers M deals M over them)")  # fmt: skip
    add("--server-hostfile", metavar="FILE", help="the same in a file")
    add("--worker-hostfile", "-WH", metavar="FILE", dest="worker_hostfile", help=argparse.SUPPRESS)
    add("-SH", metavar="FILE", dest="old_server_hostfile", help=argparse.SUPPRESS)
    add("--scheduler-ip", metavar="ADDRESS", default="", type=address, help="where the others reach the "
        "scheduler (default: the address at which ssh reached the machine of worker 0)")  # fmt: skip
    add("--ssh-user", "--username", metavar="NAME", default="", help="for hosts without one")
    add("--ssh-port", metavar="PORT", type=port, default=0, help="for hosts without one")
    add("--ssh", metavar="COMMAND", default="ssh", help="how to call ssh, for example: 'ssh -i key -J gate'")
    add("--python", metavar="PATH", help="the interpreter on every machine (default: the same path as here)")


def asked(args: argparse.Namespace) -> bool:
    """Whether these options ask for this way."""
    return bool(args.hosts or args.hostfile or args.worker_hostfile)


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Run a job; ``ConfigError`` for wrong use."""
    from dataclasses import replace

    from byteps.launcher import frames, guard, here
    from byteps.launcher.agent_connection import AgentConnection
    from byteps.launcher.belongs import refuse_overruled
    from byteps.launcher.dry_run import describe
    from byteps.launcher.fleet import Fleet
    from byteps.launcher.layout import facts_from, plan_hosts
    from byteps.launcher.manner import Manner
    from byteps.launcher.plan import UNKNOWN
    from byteps.launcher.silence import tolerated_s

    layout = _layout(args)
    python = args.python or sys.executable
    env = forwarded(os.environ, args.env)
    unknown = replace(UNKNOWN, python=python, root_uri=args.scheduler_ip or "(the scheduler's host)",
                      master_addr="(the host of worker 0)",
                      root_port=str(args.scheduler_port or UNKNOWN.root_port))  # fmt: skip
    outline = plan_hosts(layout, command, env, unknown)
    refuse_overruled(variables(args.env, os.environ), outline.processes, env)
    if args.dry_run:
        print(describe(outline, env, args))
        return 0
    used = {spec.host for spec in outline.processes}
    hosts = {host.key: host for host in layout.hosts if host.key in used}
    folder = args.chdir or str(Path.cwd())
    root = layout.scheduler.key if layout.scheduler.key in hosts else layout.workers[0][0].key
    openings = {
        key: frames.Open(
            folder,
            args.scheduler_port if key == root else -1,
            "127.0.0.1" if len(hosts) == 1 else "",
        )
        for key in hosts
    }
    facts = replace(here.made_facts(), python=python)

    def complete(hellos: Mapping[str, frames.Hello]) -> Sequence[object]:
        return plan_hosts(layout, command, env, facts_from(layout, hellos, facts)).processes

    def connect(key: str, places: Sequence[int]) -> AgentConnection:
        argv = command_to(hosts[key], args.ssh, python, tolerated_s(env))
        extra = {"PYTHONSAFEPATH": "1"} if argv[0] == python else {}
        return AgentConnection(key, places, argv, {**os.environ, **extra})

    def job(front_gone: int) -> int:
        return Fleet(
            *(outline.processes, os.environ, front_gone),
            openings=openings,
            connect=connect,
            complete=complete,  # type: ignore[arg-type]
            env=env,
            manner=manner,
        ).run()

    manner = Manner.of(args)
    here.open_standard_fds()
    return guard.guarded(job)


def command_to(host: Host, ssh: str, python: str, silence_s: float) -> list[str]:
    """How to start an agent on a host. The name localhost alone means this machine, without ssh."""
    from byteps.launcher.silence import PING_S

    if host.key == "localhost":
        return [python, "-m", "byteps.launcher.agent"]
    # A shell of any kind understands this. SAFEPATH: a file in the home folder must not break the agent.
    remote = shlex.join(["exec", "env", "PYTHONSAFEPATH=1", python, "-m", "byteps.launcher.agent"])
    options = ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]
    count = math.ceil(silence_s / PING_S)
    options += ["-o", f"ServerAliveInterval={PING_S:g}", "-o", f"ServerAliveCountMax={count}"]
    options += ["-p", str(host.port)] if host.port else []
    options += ["-l", host.user] if host.user else []
    return [*shlex.split(ssh), *options, "--", host.name, remote]


def forwarded(environ: Mapping[str, str], extra: Sequence[str]) -> dict[str, str]:
    """What every process gets of the launcher's environment, and what ``--env`` adds.

    >>> forwarded({"BYTEPS_LOG_LEVEL": "INFO", "HOME": "/root", "KEY": "x"}, ["KEY", "A=1", "B:2"])
    {'BYTEPS_LOG_LEVEL': 'INFO', 'KEY': 'x', 'A': '1', 'B': '2'}
    """
    env = {name: text for name, text in environ.items() if name.startswith(_PASSED) or name in _PASSED_NAMES}
    return {**env, **variables(extra, environ)}


def _layout(args: argparse.Namespace) -> Layout:
    from dataclasses import replace

    from byteps.errors import ConfigError
    from byteps.launcher.hosts import parse_file, parse_list
    from byteps.launcher.layout import lay_out

    sources = [name for name in ("hosts", "hostfile", "worker_hostfile") if getattr(args, name)]
    if len(sources) > 1:
        raise ConfigError("worker machines are given twice; keep one of -H, --hostfile and --worker-hostfile")
    if args.hosts:
        workers = parse_list(args.hosts, "-H")
    elif args.hostfile:
        workers = parse_file(_text(args.hostfile), f"--hostfile {args.hostfile}")
    else:
        path = args.worker_hostfile
        workers = parse_file(_text(path), f"--worker-hostfile {path}", number_is_port=True)
    servers = parse_list(args.server_hosts, "--server-hosts") if args.server_hosts else []
    for path, old in ((args.server_hostfile, bool(args.worker_hostfile)), (args.old_server_hostfile, True)):
        if path:
            servers += parse_file(_text(path), f"--server-hostfile {path}", number_is_port=old)
    known = [
        replace(host, user=host.user or args.ssh_user, port=host.port or args.ssh_port)
        if host.key != "localhost"
        else host
        for host in (*workers, *servers)
    ]
    nproc = args.nproc if args.nproc is not None else 1
    workers, servers = known[: len(workers)], known[len(workers) :]
    if args.nproc is not None and all(host.slots is not None for host in workers):
        raise ConfigError(
            f"-n {args.nproc} is for hosts without a number of ranks, and every host has one; keep one"
        )
    layout = lay_out(workers, servers, args.servers, nproc, args.scheduler_ip)
    total = sum(count for _, count in layout.workers)
    if args.np is not None and args.np != total:
        raise ConfigError(
            f"-np {args.np}: the hosts have {total} ranks in all; give each its own, as in node1:4,node2:4"
        )
    return layout


def _text(path: str) -> str:
    from byteps.errors import ConfigError

    try:
        return Path(path).read_text()
    except OSError as error:
        raise ConfigError(f"host file {path!r} cannot be read: {error.strerror}") from None
