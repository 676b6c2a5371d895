"""The command ``bpslaunch``: reads arguments, finds the way that they ask for, and goes it.

Every way to launch is a module with ``add_arguments(parser)``, ``asked(args)`` and ``run(args, command)``;
the way of this file is the last one, this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from byteps.launcher import belongs, k8s, nodes, ray_cluster, slurm, ssh
from byteps.launcher.arguments import port, variables
from byteps.launcher.help import DESCRIPTION, EXAMPLES, USAGE
from byteps.launcher.page import offer_page
from byteps.launcher.trace import traced
from byteps.observe.reader import with_a_reader

# Everything else is imported where it is used: --help and wrong options answer at once.
from byteps.version import __version__

if TYPE_CHECKING:
    from byteps.launcher.manner import Manner
    from byteps.launcher.plan import Options, Plan

__all__ = ["WAYS", "build_parser", "main"]

WAYS: dict[str, ModuleType] = {
    belongs.SSH: ssh,
    belongs.SLURM: slurm,
    belongs.RAY: ray_cluster,
    belongs.K8S: k8s,
    belongs.NODES: nodes,
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``bpslaunch``. Everything from the first word that is not an option on is the command."""
    parser = argparse.ArgumentParser(
        prog="bpslaunch",
        usage=USAGE,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"bpslaunch {__version__}")
    add(
        *("-n", "--nproc", "--nproc-per-node", "--nproc_per_node"),
        type=nodes.count,
        metavar="N",
        help="start N ranks on a machine; auto: one for each visible device, else for each core; cpu, gpu "
        "(default: one, or one for each of NVIDIA_VISIBLE_DEVICES if DMLC_ROLE=worker)",
    )
    add(
        *("-np", "--num-proc"),
        type=int,
        metavar="N",
        dest="np",
        help="start N ranks in all, as horovodrun has it: -n N on one machine, with -H the sum of its hosts",
    )
    add("--workers", type=int, metavar="W", help="a whole job of W worker machines, each with N ranks")
    add(
        "--servers",
        type=int,
        metavar="M",
        help="with M servers (default: 1 if there is more than one worker machine, else none)",
    )
    add(
        "--log-dir",
        metavar="DIR",
        help="write the output of every process to a file of its own there, too: worker-0.log, server-1.log",
    )
    add(
        "--trace",
        metavar="DIR",
        help="record what happens to every tensor in steps 10 to 20 (BYTEPS_TRACE_START_STEP, _END_STEP) and "
        "merge what was recorded on this machine into DIR/merged.json for Perfetto",
    )
    add(
        "--dashboard",
        action="store_true",
        help="let the scheduler serve a page about the job, at a free port or at BYTEPS_DASHBOARD_PORT, and "
        "print its address",
    )
    add(
        "--grace",
        type=float,
        metavar="S",
        help="after a signal, ranks may clean up for S seconds before they are killed (default: 2.5)",
    )
    add(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="an environment variable for all processes, on other machines besides BYTEPS_*, DMLC_* and the "
        "like; without a value: the one it has here",
    )
    add("--chdir", metavar="FOLDER", help="where all processes work (default: the same path as here)")
    add(
        "--scheduler-port",
        type=port,
        metavar="PORT",
        default=0,
        help="the port of the scheduler (default: a free one; Slurm: one that follows from the step; "
        "Kubernetes: 9000)",
    )
    add("--dry-run", action="store_true", help="print every process with its environment and start nothing")
    for way in WAYS.values():
        way.add_arguments(parser)
    add(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="what each worker runs, with its arguments",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return with_a_reader(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    from byteps.errors import ConfigError

    parser = build_parser()
    try:
        args, said = belongs.parse(parser, _without_horovodrun(parser, argv))
    except ConfigError as error:
        parser.error(str(error))
    command = args.command[1:] if args.command[:1] == ["--"] else args.command

    try:
        ways = [name for name, way in WAYS.items() if way.asked(args)]
        if len(ways) > 1:
            raise ConfigError(f"{' and '.join(ways)} are different ways to launch; keep one")
        way = ways[0] if ways else _way_here(args, os.environ)
        belongs.check(said, way)
        _take_np(args, way)
        if way in (belongs.HERE, belongs.ROLE, belongs.SLURM, belongs.NODES):
            _settle(args)
        if args.dashboard and not args.dry_run:
            offer_page()
        run = WAYS[way].run if ways else _here
        return traced(args.trace, args.dry_run, lambda: int(run(args, command)))
    except ConfigError as error:
        from byteps.launcher.guard import wrong_use

        return wrong_use(error)
    except OSError as error:
        from byteps.control.shortage import explained, is_shortage

        if not is_shortage(error):
            raise
        print(f"bpslaunch: error: {explained(error)}", file=sys.stderr)
        return 1


def _without_horovodrun(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> Sequence[str]:
    """The words with what horovodrun would have taken put into ours."""
    words = sys.argv[1:] if argv is None else argv
    if not any(word.startswith("-") for word in words):
        return words
    from byteps.launcher.horovodrun import translated

    actions = parser._option_string_actions
    ours, notes = translated(words, {name for name, action in actions.items() if action.nargs is None})
    for note in notes:
        print(f"bpslaunch: {note}", file=sys.stderr)
    return ours


def _way_here(args: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """A whole job on this machine, or one role of a job whose others are started elsewhere."""
    whole = args.workers is not None or args.servers is not None
    role = environ.get("DMLC_ROLE") or any(word.startswith("DMLC_ROLE=") for word in args.env)
    return belongs.ROLE if role and not whole else belongs.HERE


def _take_np(args: argparse.Namespace, way: str) -> None:
    """``-np N`` on one machine is ``-n N``; ssh compares it with the ranks of its hosts."""
    from byteps.errors import ConfigError

    if args.np is None:
        return
    for other in ("nproc", "workers"):
        if getattr(args, other) is not None:
            raise ConfigError(
                f"-np {args.np} counts all ranks, and {belongs.option(other)} counts differently; keep one: "
                "bpslaunch --workers W -n N has W machines of N ranks"
            )
    if args.np < 1:
        raise ConfigError(f"-np {args.np}: expected at least 1 rank")
    if way == belongs.HERE:
        args.nproc = args.np


def _settle(args: argparse.Namespace) -> None:
    """Put ``--env`` and ``--chdir`` into force: all that is started on this machine inherits them."""
    from byteps.errors import ConfigError

    os.environ.update(variables(args.env, os.environ))
    if args.chdir is None:
        return
    if args.trace is not None:
        args.trace = str(Path(args.trace).absolute())
    if args.log_dir is not None:
        args.log_dir = str(Path(args.log_dir).absolute())  # as seen from where we were called
    try:
        os.chdir(args.chdir)
    except OSError as error:
        raise ConfigError(f"--chdir {args.chdir}: {error.strerror}") from None


def _here(args: argparse.Namespace, command: Sequence[str]) -> int:
    from dataclasses import replace

    from byteps.launcher.manner import Manner
    from byteps.launcher.plan import UNKNOWN, Options, plan

    options = Options(tuple(command), args.workers, args.servers, args.nproc)
    told = _told_facts(args)
    # Once with what is not known yet, so that a mistake is found before anything is opened or started.
    outline = _on_this_machine(plan(options, os.environ, replace(UNKNOWN, python=sys.executable, **told)))
    belongs.refuse_overruled(variables(args.env, os.environ), outline.processes, os.environ)
    if args.scheduler_port and not any("BYTEPS_LISTEN_FD" in spec.env for spec in outline.processes):
        from byteps.errors import ConfigError

        raise ConfigError("--scheduler-port does nothing in a job of one: it has no scheduler; try -n 2")
    if args.dry_run:
        from byteps.launcher.dry_run import describe

        print(describe(outline, os.environ, args))
        return 0
    if outline.note and (not outline.processes or outline.config.log_level in ("INFO", "DEBUG", "TRACE")):
        print(f"bpslaunch: {outline.note}", file=sys.stderr)
    if not outline.processes:
        return 0
    if outline.in_process and args.log_dir is None and args.grace is None:
        return _in_process(outline.processes[0].role)
    for number, what in ((args.scheduler_port, "the scheduler"), (args.master_port, "torch.distributed")):
        if number:
            _need_free(number, what)
    return _launch(options, Manner.of(args), args)


def _told_facts(args: argparse.Namespace) -> dict[str, str]:
    """What the options of torchrun, and the port of the scheduler, say of a job on this machine."""
    from byteps.errors import ConfigError

    if args.node_rank:
        raise ConfigError(f"--node-rank {args.node_rank}: there is one machine; say how many with --nnodes")
    given = {
        "root_port": args.scheduler_port,
        "master_port": args.master_port,
        "master_addr": args.master_addr,
    }
    return {name: str(value) for name, value in given.items() if value}


def _need_free(number: int, what: str) -> None:
    """``ConfigError`` if somebody listens on a port that was asked for, before anything is started."""
    import socket

    from byteps.control import ports
    from byteps.errors import ConfigError

    try:
        with socket.create_server(("", number)):
            pass
    except OSError as error:
        raise ConfigError(
            f"cannot use port {number} for {what}: {error.strerror}{ports.told(number)}; choose another"
        ) from None


def _on_this_machine(outline: Plan) -> Plan:
    """The plan with what only this machine decides: cores, and the debugger."""
    from dataclasses import replace

    from byteps.launcher import here

    processes, note = here.prepare(outline.processes, os.environ)
    return replace(outline, processes=processes, note="\n".join(filter(None, (outline.note, note))))


def _in_process(role: str) -> int:
    """Become the scheduler or a server: no second process, so that signals and exit code are its own."""
    import runpy

    try:
        runpy.run_module(f"byteps.{role}", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


def _launch(options: Options, manner: Manner, args: argparse.Namespace) -> int:
    from dataclasses import replace

    from byteps.launcher import here, single
    from byteps.launcher.plan import Facts, plan

    def planned(facts: Facts) -> Plan:
        return plan(options, os.environ, replace(facts, **_told_facts(args)))

    return single.launch(planned, lambda: here.bind(args.scheduler_port), manner, args.master_port or 0)
