"""A part of a job, started here while others start the rest: a task of Slurm, or one machine of several.

Everybody computes the same numbers from the same facts, so nobody has to be asked.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from byteps.errors import ConfigError
from byteps.launcher.parts import (
    LAUNCH_ID,
    PLACE,
    SAFE,
    label,
    listening,
    load_without,
    module,
    place,
    server_port,
    unbuffered,
)
from byteps.launcher.spec import UNKNOWN, Facts, Plan, ProcessSpec

__all__ = ["Share", "plan_share", "run"]

# Servers end with the scheduler, when the last worker of the job has left. That may be long after our own.
_DRAIN_S = 1e6


@dataclass(frozen=True)
class Share:
    """What of which job is started here."""

    sizes: tuple[int, ...]  # ranks of every worker machine
    machine: int  # which of them is this one; ignored without ranks
    ranks: tuple[int, ...]  # local ranks to start
    servers: int  # of the whole job
    own_servers: tuple[int, ...]  # those to start
    scheduler: bool  # whether to start it, or hold its socket for rank 0 if there are no servers
    root_uri: str
    root_port: int
    master_port: int
    job_id: str  # empty: none
    secret: str = field(default="", repr=False)  # empty: none, or the user's own
    master_addr: str = ""  # empty: where the scheduler is
    launch_id: str = ""  # empty: the parts of the job know of no common launch


def plan_share(share: Share, command: Sequence[str], environ: Mapping[str, str], facts: Facts) -> Plan:
    """The processes to start here. ``facts``: the interpreter, and the scheduler's socket if it is ours."""
    config = load_without(environ, PLACE - {"BYTEPS_FORCE_DISTRIBUTED"})
    if share.ranks and not command:
        raise ConfigError(
            "nothing to run: a COMMAND is needed, for example: bpslaunch --slurm python train.py"
        )
    serverless = not share.servers
    common = {
        "DMLC_NUM_WORKER": str(len(share.sizes)),
        "DMLC_NUM_SERVER": str(share.servers),
        "DMLC_PS_ROOT_URI": share.root_uri,
        "DMLC_PS_ROOT_PORT": str(share.root_port),
        **({"BYTEPS_JOB_ID": share.job_id} if share.job_id else {}),
        **({LAUNCH_ID: share.launch_id} if share.launch_id else {}),
        **_secret(share, environ),
        **unbuffered(environ),
    }
    if share.servers and len(share.sizes) == 1:  # whoever asks for servers wants them used
        common["BYTEPS_FORCE_DISTRIBUTED"] = "1"
    # What the user set for a machine of his own (its interface, its address) stays.
    drop = PLACE - {"DMLC_INTERFACE", "DMLC_NODE_HOST"}

    def member(name: str, role: str, argv: Sequence[str], more: Mapping[str, str]) -> ProcessSpec:
        return ProcessSpec(name, role, tuple(argv), {"DMLC_ROLE": role, **common, **more}, drop)

    master = {"MASTER_ADDR": share.master_addr or share.root_uri, "MASTER_PORT": str(share.master_port)}
    sizes = list(share.sizes)
    ranks = [
        member(
            label(sizes, share.machine, rank),
            "worker",
            command,
            {**place(sizes, share.machine, rank), **master},
        )
        for rank in share.ranks
    ]
    if ranks:
        ranks[0] = replace(ranks[0], stdin=0 in share.ranks and share.machine == 0)
    if serverless:
        if share.scheduler and ranks and sum(sizes) > 1:
            ranks[0] = listening(ranks[0], facts)
        return Plan(config, tuple(ranks))
    services = [member("scheduler", "scheduler", module(facts, "scheduler"), SAFE)] if share.scheduler else []
    services = [listening(spec, facts) for spec in services]
    crew = [
        member(
            *(f"server {k}", "server", module(facts, "server")),
            {**SAFE, **server_port(config, share.root_port, index)},
        )
        for index, k in enumerate(share.own_servers)
    ]
    return Plan(config, (*services, *crew, *ranks))


def _secret(share: Share, environ: Mapping[str, str]) -> dict[str, str]:
    own = {
        name: environ[name] for name in ("BYTEPS_JOB_SECRET", "BYTEPS_JOB_SECRET_FILE") if environ.get(name)
    }
    return own or ({"BYTEPS_JOB_SECRET": share.secret} if share.secret else {})


def _rivalry(outline: Plan, environ: Mapping[str, str]) -> str:
    """Tell the scheduler that has our port of ours, if it is one; the words to begin the error with."""
    from byteps.config import load
    from byteps.scheduler import rivals

    env = outline.processes[0].environment(environ)
    return rivals.announce(load({**env, "BYTEPS_LISTEN_FD": ""}))  # there is no socket yet


def run(
    share: Share, command: Sequence[str], environ: Mapping[str, str], python: str, args: argparse.Namespace
) -> int:
    """Start it and return its exit code; ``ConfigError`` for wrong use."""
    import socket

    from byteps.launcher.arguments import variables
    from byteps.launcher.belongs import refuse_overruled

    outline = plan_share(share, command, environ, replace(UNKNOWN, python=python))
    refuse_overruled(variables(args.env, environ), outline.processes, environ)
    if args.dry_run:
        from byteps.launcher.dry_run import describe

        print(describe(outline, environ, args))
        return 0
    from byteps.control import ports
    from byteps.control.address import is_loopback
    from byteps.control.listening import bound
    from byteps.launcher import here, single
    from byteps.launcher.manner import Manner

    def bind() -> socket.socket:
        if not share.scheduler:
            return here.bind()  # never used
        # A name that means loopback here may mean this machine elsewhere: only an address is taken literally.
        host = share.root_uri if is_loopback(share.root_uri) else "::" if ":" in share.root_uri else "0.0.0.0"
        return bound(host, share.root_port)

    if share.scheduler:
        try:
            with bind() as probe:  # said before anything is started
                probe.listen(1)
        except OSError as error:
            raise ConfigError(
                f"{_rivalry(outline, environ)}cannot use port {share.root_port} for the scheduler: "
                f"{error.strerror}"
                f"{ports.told(share.root_port)}; choose another, the same everywhere, with "
                "--scheduler-port (Slurm) or --master-port (--nnodes)"
            ) from None

    def planned(facts: Facts) -> Plan:
        return plan_share(share, command, environ, replace(facts, python=python))

    return single.launch(planned, bind, Manner.of(args).draining(_DRAIN_S))
