"""``bpslaunch --ray``: a command on a Ray cluster, which places the machines of the job. Options.

The same agents as with ssh, started by actors of Ray; see ``ray_agents`` for the connection.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byteps.launcher.hosts import Host

__all__ = ["add_arguments", "asked", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this way."""
    add = parser.add_argument_group("Ray").add_argument
    add("--ray", action="store_true", help="on a Ray cluster: W machines of N ranks, and M servers")
    add("--ray-address", metavar="ADDRESS", default=None, help="of the cluster (default: RAY_ADDRESS, else "
        "the one that runs on this machine)")  # fmt: skip
    add("--cpus-per-worker", metavar="C", type=float, default=1.0, help="CPUs that Ray reserves for a rank")
    add("--gpus-per-worker", metavar="G", type=float, default=0.0, help="GPUs that Ray reserves for a rank")
    add("--cpus-per-server", metavar="C", type=float, default=1.0, help="CPUs that Ray reserves for a server")
    add("--ray-strategy", metavar="S", default="PACK", help="PACK, SPREAD, STRICT_PACK or STRICT_SPREAD")
    add("--ray-timeout", metavar="SECONDS", type=float, default=300.0, help="how long to wait for resources")


def asked(args: argparse.Namespace) -> bool:
    """Whether these options ask for this way."""
    return bool(args.ray)


def run(args: argparse.Namespace, command: Sequence[str]) -> int:
    """Run a job; ``ConfigError`` for wrong use."""
    from dataclasses import replace

    from byteps.errors import BytePSError, ConfigError
    from byteps.launcher import frames, guard, here, nodes
    from byteps.launcher.arguments import variables
    from byteps.launcher.belongs import refuse_overruled
    from byteps.launcher.dry_run import describe
    from byteps.launcher.fleet import Fleet
    from byteps.launcher.layout import lay_out, plan_hosts
    from byteps.launcher.manner import Manner
    from byteps.launcher.plan import UNKNOWN, Plan
    from byteps.launcher.spec import Facts
    from byteps.launcher.ssh import forwarded

    workers, nproc = 1 if args.workers is None else args.workers, nodes.ranks(args)
    layout = lay_out(*_names(workers, args.servers), None, nproc)
    env = forwarded(os.environ, args.env)
    python = args.python or sys.executable

    def planned(facts: Facts, where: Mapping[str, str]) -> Plan:
        made = plan_hosts(layout, command, env, replace(facts, python=python))
        named = (
            replace(spec, label=f"{spec.label.partition('@')[0]}{where.get(spec.host, '')}")
            for spec in made.processes
        )
        return replace(made, processes=tuple(named))

    root_port = str(args.scheduler_port or UNKNOWN.root_port)
    unknown = replace(
        UNKNOWN, root_uri="(the node of worker 0)", master_addr="(the same)", root_port=root_port
    )
    outline = planned(unknown, {})
    refuse_overruled(variables(args.env, os.environ), outline.processes, env)
    if args.dry_run:
        print(describe(outline, env, args))
        return 0
    facts = here.made_facts()
    folder = args.chdir or str(Path.cwd())

    def job(front_gone: int) -> int:
        from byteps.launcher.ray_agents import RayHosts

        try:
            hosts = RayHosts(args, layout, nproc, python)
        except BytePSError as error:
            print(f"bpslaunch: error: {error}", file=sys.stderr)
            return 2 if isinstance(error, ConfigError) else 1
        try:
            root = layout.workers[0][0].key
            address = hosts.addresses[root]

            def complete(hellos: Mapping[str, frames.Hello]) -> Sequence[object]:
                own = replace(
                    facts,
                    root_port=str(hellos[root].root_port),
                    root_uri=address if len(hellos) > 1 else "127.0.0.1",
                    master_addr=address,
                    master_port=str(hellos[root].master_port),
                    listen_fd=frames.LISTEN_FD,
                )
                return planned(own, hosts.labels).processes

            listen, port = "" if len(hosts.addresses) > 1 else "127.0.0.1", args.scheduler_port
            openings = {
                key: frames.Open(folder, port if key == root else -1, listen) for key in hosts.addresses
            }
            return Fleet(
                *(planned(UNKNOWN, hosts.labels).processes, os.environ, front_gone),
                openings=openings,
                connect=hosts.connect,
                complete=complete,  # type: ignore[arg-type]
                env=env,
                manner=manner,
            ).run()
        finally:
            hosts.close()

    manner = Manner.of(args)
    here.open_standard_fds()
    return guard.guarded(job)


def _names(workers: int, servers: int | None) -> tuple[list[Host], list[Host]]:
    """Names for the bundles of a placement group, which Ray puts on nodes."""
    from byteps.errors import ConfigError
    from byteps.launcher.hosts import Host

    if workers < 1:
        raise ConfigError(f"--workers {workers}: expected at least 1 worker machine")
    count = (1 if workers > 1 else 0) if servers is None else servers
    return [Host(f"worker{k}") for k in range(workers)], [Host(f"server{k}", 1) for k in range(count)]
