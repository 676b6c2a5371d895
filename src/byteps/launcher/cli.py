"""The command ``bpslaunch``: reads arguments, plans, and runs the plan."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # everything is imported where it is used: --help and wrong options answer at once
    from byteps.launcher.plan import Options, Plan

__all__ = ["main"]

_DESCRIPTION = """\
Start a job, or one role of it. Its exit code is that of the first process that fails, 128+n after a signal n,
2 when it was called wrongly, 127 or 126 when the command cannot be found or run. Nothing is left behind."""

_EXAMPLES = """\
several ranks on this machine; nothing else has to be started:
  bpslaunch -n 4 python train.py --epochs 3
  NVIDIA_VISIBLE_DEVICES=0,1,2,3 DMLC_NUM_WORKER=1 DMLC_ROLE=worker bpslaunch python train.py      the same

a job of several machines, played on this one:
  bpslaunch --workers 2 --servers 1 python train.py              two machines of one rank each, one server
  bpslaunch --workers 2 -n 2 --servers 2 python train.py         two machines of two ranks each
  bpslaunch --dry-run --workers 2 --servers 1 python train.py    what would be started, and how

the command alone, a job of one:
  bpslaunch python train.py

one role on each machine, in any order; here two workers and one server, the scheduler on 10.0.0.1:
  export DMLC_PS_ROOT_URI=10.0.0.1 DMLC_PS_ROOT_PORT=9000 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1
  DMLC_ROLE=scheduler bpslaunch
  DMLC_ROLE=server bpslaunch
  DMLC_ROLE=worker DMLC_WORKER_ID=0 bpslaunch python train.py
  DMLC_ROLE=worker DMLC_WORKER_ID=1 bpslaunch -n 2 python train.py                           two ranks here

`bps env` explains every variable."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``bpslaunch``. Everything from the first word that is not an option on is the command."""
    parser = argparse.ArgumentParser(
        prog="bpslaunch",
        usage="bpslaunch [-n N] [--workers W] [--servers M] [--log-dir DIR] [--dry-run] [COMMAND ...]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        *("-n", "--nproc", "--nproc-per-node"),
        type=int,
        metavar="N",
        help="start N ranks on this machine (default: one, or one for each of NVIDIA_VISIBLE_DEVICES if "
        "DMLC_ROLE=worker)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="W",
        help="start a whole job of W worker machines here, each with N ranks",
    )
    parser.add_argument(
        "--servers",
        type=int,
        metavar="M",
        help="with M servers (default: 1 if there is more than one worker machine, else none)",
    )
    parser.add_argument(
        "--log-dir",
        metavar="DIR",
        help="write the output of every process to a file of its own there, too: rank-0.log, server-1.log",
    )
    parser.add_argument(
        "--grace",
        type=float,
        metavar="S",
        help="after a signal, ranks may clean up for S seconds before they are killed (default: 2.5)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print every process with its environment and start nothing"
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="what each worker runs, with its arguments",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args = build_parser().parse_args(argv)
    from dataclasses import replace

    from byteps.errors import ConfigError
    from byteps.launcher.plan import UNKNOWN, Options, plan

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    options = Options(tuple(command), args.workers, args.servers, args.nproc)
    try:  # once with what is not known yet, so that a mistake is found before anything is opened or started
        if args.grace is not None and not 0 <= args.grace < 1e6:
            raise ConfigError(f"--grace {args.grace:g}: expected a number of seconds")
        outline = plan(options, os.environ, replace(UNKNOWN, python=sys.executable))
        outline = _on_this_machine(outline)
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"bpslaunch: error: {line}", file=sys.stderr)
        return 2
    if args.dry_run:
        return _dry_run(outline)
    if outline.note and (not outline.processes or outline.config.log_level in ("INFO", "DEBUG", "TRACE")):
        print(f"bpslaunch: {outline.note}", file=sys.stderr)
    if not outline.processes:
        return 0
    if outline.in_process and args.log_dir is None:
        return _in_process(outline.processes[0].role)
    return _launch(options, args.log_dir, args.grace)


def _on_this_machine(outline: Plan) -> Plan:
    """The plan with what only this machine decides: cores, and the debugger."""
    from dataclasses import replace

    from byteps.launcher import local

    processes, note = local.prepare(outline.processes, os.environ)
    return replace(outline, processes=processes, note="\n".join(filter(None, (outline.note, note))))


def _dry_run(outline: Plan) -> int:
    from byteps.launcher.dry_run import describe

    print(describe(outline, os.environ))
    return 0


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


def _launch(options: Options, log_dir: str | None, grace_s: float | None) -> int:
    from dataclasses import replace
    from pathlib import Path

    from byteps.errors import ConfigError
    from byteps.launcher import guard, local, supervise
    from byteps.launcher.ending import Times
    from byteps.launcher.log_files import LogFiles
    from byteps.launcher.plan import plan

    local.open_standard_fds()
    times = Times() if grace_s is None else Times(stop_s=grace_s)
    stdin = local.stdin_is_ours()  # asked here: the supervisor has left the terminal's session

    def job(front_gone: int) -> int:
        listener = local.bind()
        with local.reserve() as master:  # for as long as the job runs: its program may ask for the port late
            facts = replace(local.facts(listener), master_port=str(master.getsockname()[1]))
            processes = plan(options, os.environ, facts).processes
            try:
                labels = [spec.label for spec in processes]
                logs = None if log_dir is None else LogFiles(Path(log_dir), labels)
            except ConfigError as error:
                print(f"bpslaunch: error: {error}", file=sys.stderr)
                return 2
            if local.listen(listener, processes):
                listener.detach()  # another process's from now on
            else:
                listener.close()
            return supervise.run(
                processes, os.environ, stdin=stdin, front_gone=front_gone, times=times, logs=logs
            )

    return guard.guarded(job)
