"""A plan as text: every process with its command and what this package reads of its environment."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping

from byteps.config import VARIABLES
from byteps.launcher.arguments import variables
from byteps.launcher.plan import Plan, ProcessSpec
from byteps.launcher.topology import cpu_text

_OURS = ("BYTEPS_", "DMLC_", "PS_")


def describe(plan: Plan, inherited: Mapping[str, str], args: argparse.Namespace | None = None) -> str:
    """What ``bpslaunch --dry-run`` prints. Values the launcher sets and values it passes on; no secrets."""
    parts = [f"# {line}" for line in (*plan.note.splitlines(), *(_manner(args) if args else ()))]
    if plan.in_process:
        parts.append("# in the launcher's own process")
    added = variables(args.env, os.environ) if args else {}
    parts += [_process(spec, inherited, added) for spec in plan.processes]
    return "\n".join(parts)


def _manner(args: argparse.Namespace) -> list[str]:
    """How the processes are run, where something was said about it."""
    said = {
        "in the folder {}": args.chdir,
        "output also in {}": args.log_dir,
        "after a signal {:g} s to clean up": args.grace,
        "the scheduler serves a page about the job": args.dashboard or None,
    }
    return [text.format(value) for text, value in said.items() if value is not None]


def _process(spec: ProcessSpec, inherited: Mapping[str, str], added: Mapping[str, str]) -> str:
    # Values of --env may be keys of any service: only their names are shown.
    environment = {**spec.environment(inherited), **dict.fromkeys(added, "(as --env says)")}
    shown = sorted(
        name
        for name in environment
        if name in spec.env or name in VARIABLES or name in added or name.startswith(_OURS)
    )
    lines = [f"[{spec.label}] {shlex.join(spec.argv)}"]
    if spec.cpus:
        memory = "" if spec.memory_node is None else f", memory of node {spec.memory_node}"
        lines.append(f"    # on processors {cpu_text(spec.cpus)}{memory}")
    lines += [f"    {name}={_value(name, environment[name])}" for name in shown]
    return "\n".join(lines)


def _value(name: str, value: str) -> str:
    # By name and not by the table: a mistyped name of a secret holds a secret too.
    return "********" if "SECRET" in name and not name.endswith("_FILE") else value
