"""The command ``bpslaunch``: reads arguments, finds the way that they ask for, and goes it.

Every way to launch is a module with ``add_arguments(parser)``, ``asked(args)`` and ``run(args, command)``;
the way of this file is the last one, this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

# Everything else is imported where it is used: --help and wrong options answer at once.
from byteps.launcher import k8s, nodes, ray_cluster, slurm, ssh
from byteps.launcher.help import DESCRIPTION, EXAMPLES, USAGE

if TYPE_CHECKING:
    from byteps.launcher.manner import Manner
    from byteps.launcher.plan import Options, Plan

__all__ = ["WAYS", "build_parser", "main"]

WAYS: dict[str, ModuleType] = {
    "-H or --hostfile": ssh,
    "--slurm": slurm,
    "--ray": ray_cluster,
    "--k8s": k8s,
    "--nnodes": nodes,
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
    add(
        *("-n", "--nproc", "--nproc-per-node", "--nproc_per_node"),
        type=nodes.count,
        metavar="N",
        help="start N ranks on a machine; auto: one for each visible device, else for each core; cpu, gpu "
        "(default: one, or one for each of NVIDIA_VISIBLE_DEVICES if DMLC_ROLE=worker)",
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
        help="write the output of every process to a file of its own there, too: rank-0.log, server-1.log",
    )
    add(
        "--grace",
        type=float,
        metavar="S",
        help="after a signal, ranks may clean up for S seconds before they are killed (default: 2.5)",
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
    args = build_parser().parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    from byteps.errors import ConfigError

    try:
        ways = [name for name, way in WAYS.items() if way.asked(args)]
        if len(ways) > 1:
            raise ConfigError(f"{' and '.join(ways)} are different ways to launch; keep one")
        return WAYS[ways[0]].run(args, command) if ways else _here(args, command)
    except ConfigError as error:
        from byteps.launcher.guard import wrong_use

        return wrong_use(error)
    except OSError as error:
        from byteps.control.shortage import explained, is_shortage

        if not is_shortage(error):
            raise
        print(f"bpslaunch: error: {explained(error)}", file=sys.stderr)
        return 1


def _here(args: argparse.Namespace, command: Sequence[str]) -> int:
    from dataclasses import replace

    from byteps.launcher.manner import Manner
    from byteps.launcher.plan import UNKNOWN, Options, plan

    options = Options(tuple(command), args.workers, args.servers, args.nproc)
    # Once with what is not known yet, so that a mistake is found before anything is opened or started.
    outline = _on_this_machine(plan(options, os.environ, replace(UNKNOWN, python=sys.executable)))
    if args.dry_run:
        from byteps.launcher.dry_run import describe

        print(describe(outline, os.environ))
        return 0
    if outline.note and (not outline.processes or outline.config.log_level in ("INFO", "DEBUG", "TRACE")):
        print(f"bpslaunch: {outline.note}", file=sys.stderr)
    if not outline.processes:
        return 0
    if outline.in_process and args.log_dir is None:
        return _in_process(outline.processes[0].role)
    return _launch(options, Manner.of(args))


def _on_this_machine(outline: Plan) -> Plan:
    """The plan with what only this machine decides: cores, and the debugger."""
    from dataclasses import replace

    from byteps.launcher import local

    processes, note = local.prepare(outline.processes, os.environ)
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


def _launch(options: Options, manner: Manner) -> int:
    from byteps.launcher import local, single
    from byteps.launcher.plan import Facts, plan

    def planned(facts: Facts) -> Plan:
        return plan(options, os.environ, facts)

    return single.launch(planned, local.bind, manner)
