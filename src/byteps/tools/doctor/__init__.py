"""``bps doctor``: what would make a job fail or run slowly here, each with a remedy.

facts      probes of this machine          machine   pure: what they mean
route      the way to the scheduler        job       a running job, asked through its scheduler
member     a job of its own that measures  paths     pure: who is slow
findings   the vocabulary of the report
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from byteps.config import Config, endpoint, load
from byteps.errors import ConfigError
from byteps.tools.doctor.findings import Finding, as_json, fail, ok, table, verdict

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Look for what makes jobs fail or run slowly, and say what to do about it. Alone it examines this machine.
With the address of a scheduler (HOST:PORT, or DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT) it examines the way
there and asks the running job for its members: who is missing, versions, clocks. As the command of a job it
joins as every worker and measures latency and bandwidth between all members."""

_EXAMPLES = """\
examples:
  bps doctor                                           this machine
  bps doctor 10.0.0.1:9000                             and the job whose scheduler is there
  bpslaunch --workers 2 --servers 1 bps doctor         a job on this machine that measures itself
  DMLC_ROLE=worker ... bpslaunch bps doctor            on every worker machine, beside scheduler and servers:
                                                       between all of them, before the real job starts
  bps doctor --json | jq '.findings[] | select(.mark != "ok")'

Ends with status 1 when something would make a job fail. A job with a secret tells nothing to those who do not
know it: set BYTEPS_JOB_ID and BYTEPS_JOB_SECRET as the job has them."""


def add_parser(subparsers: Any) -> None:
    """Add ``doctor`` to the parser of ``bps``."""
    parser = subparsers.add_parser(
        "doctor",
        help="find what makes jobs fail or run slowly",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scheduler", nargs="?", metavar="HOST:PORT", help="of a running job")
    parser.add_argument(
        "--local", action="store_true", help="this machine only, whatever the environment says"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Examine, print, and return 1 if a job would fail."""
    if args.local and args.scheduler:
        raise ConfigError("bps doctor: --local and HOST:PORT contradict each other; give one of them")
    config, settings = _settings(os.environ)
    findings = _examine(config, settings, args)
    if findings is None:
        return 0  # another rank reports
    if args.json:
        print(json.dumps({"findings": as_json(findings), "status": verdict(findings)}, indent=2))
    else:
        print(table(findings, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    return verdict(findings)


def _examine(
    config: Config | None, settings: list[Finding], args: argparse.Namespace
) -> list[Finding] | None:
    core = _core()
    if config is None or core.remedy:
        return [core, *settings]
    from byteps.tools.doctor import facts, machine

    target = "" if args.local else args.scheduler
    joins = not args.local and not target and config.role == "worker" and config.distributed
    found = [core, *settings]
    if not joins or config.local_rank == 0:  # the ranks of a machine would all say the same
        found += machine.judge(facts.gather(config), config)
    if joins:
        from byteps.tools.doctor import route

        if config.local_rank == 0:
            found += route.judge(route.look(config, config.root_uri, config.root_port))
        from byteps.tools.doctor import member

        host = os.uname().nodename
        return member.examine(config, [replace(each, where=host) for each in found])
    host, port = _address(target) if target else ("", 0)
    if not target and not args.local and config.root_uri and config.root_port:
        host, port = config.root_uri, config.root_port
    if host:
        from byteps.tools.doctor import job, route

        way = route.look(config, host, port)
        found += route.judge(way)
        if not way.resolve_error:
            found += job.judge(job.ask(config, host, port), endpoint.joined(host, port))
    return found


def _settings(environ: Mapping[str, str]) -> tuple[Config | None, list[Finding]]:
    """The settings, or none if they do not even parse; and what is to be said of them."""
    from byteps.tools.doctor.machine import judge_settings
    from byteps.tools.env import examine, judge

    errors, warnings = judge(examine(environ), environ)
    try:
        return load(environ), judge_settings(errors, warnings)
    except ConfigError:
        return None, judge_settings(errors, warnings)


def _core() -> Finding:
    """The native core can be loaded."""
    from byteps.version import __version__

    try:
        from byteps import _core
    except ImportError as error:
        return fail(
            "core",
            f"cannot be loaded: {error}",
            "install byteps again: pip install --force-reinstall byteps-train",
        )
    return ok(
        "core", f"byteps {__version__}, protocol {_core.PROTOCOL_VERSION}, Python {sys.version.split()[0]}"
    )


def _address(text: str) -> tuple[str, int]:
    try:
        return endpoint.host_and_port(text)
    except ValueError:
        raise ConfigError(
            f"bps doctor {text!r}: expected HOST:PORT, for example 10.0.0.1:9000 or [fd00::1]:9000"
        ) from None
