"""``bps env``: the table of every environment variable with the value in force in this shell."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byteps.config import VARIABLES, Variable, load, lookup, parse, show
from byteps.config.row import PRIVATE
from byteps.errors import ConfigError
from byteps.tools.env_markdown import markdown
from byteps.tools.machine_facts import memory_between_ranks

_DESCRIPTION = """\
Show every environment variable: the value in force here, the default, whether this version acts on it, and
what it means; then what this machine permits between ranks (tried, not assumed). Ends with status 1 when a
value does not parse or variables contradict each other."""

_EXAMPLES = """\
examples:
  bps env                            what a job started from this shell would use
  bps env --set                      only the variables that are set
  bps env --json | jq '.variables'   for programs
  DMLC_ROLE=worker DMLC_NUM_WORKER=2 bps env --set     is anything missing?

status:
  in force           this version acts on it
  not yet in force   read and checked, without effect in this version
  accepted           needs hardware (GPU, NCCL); without it there is no effect
  private            set by the project's own programs (shown with --all)"""


@dataclass(frozen=True)
class Line:
    """One variable as it stands in an environment."""

    variable: Variable
    given: bool
    value: str  # as shown; a secret is never shown
    error: str  # why the value does not parse, or ""


def add_parser(subparsers: Any) -> None:
    """Add ``env`` to the parser of ``bps``."""
    parser = subparsers.add_parser(
        "env",
        help="show every environment variable and the value in force",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--set", action="store_true", help="only variables that are set")
    which.add_argument("--all", action="store_true", help="private variables too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print them as a page of Markdown")


def examine(environ: Mapping[str, str]) -> list[Line]:
    """Every variable of the table with its value in ``environ``; errors are part of the answer."""
    return [_examine(variable, environ) for variable in VARIABLES.values()]


def _examine(variable: Variable, environ: Mapping[str, str]) -> Line:
    try:
        name, text = lookup(variable, environ)
        if not text:
            required = variable.default_text.startswith("required")  # then there is no value to show
            return Line(variable, False, "-" if required else show(variable.default()), "")
        value = parse(variable, name, text)
    except ConfigError as error:
        return Line(variable, True, "error", str(error))
    return Line(variable, True, "(set, not shown)" if variable.secret else show(value), "")


def judge(lines: Sequence[Line], environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(errors, warnings) of the environment as a whole; contradictions are only looked for if all parses."""
    errors = [line.error for line in lines if line.error]
    if errors:
        return errors, []
    try:
        config = load(environ)
    except ConfigError as error:  # the file of the secret, or two spellings
        return str(error).splitlines(), []
    problems = config.problems() + (config.distributed_problems() if config.distributed else [])
    return problems, list(config.warnings)


def select(lines: Sequence[Line], *, given_only: bool, private: bool) -> list[Line]:
    """The lines that were asked for; a private variable is shown when it is set or asked for."""
    chosen = (line for line in lines if line.given or not given_only)
    return [line for line in chosen if private or line.given or line.variable.status != PRIVATE]


def text_table(lines: Sequence[Line], width: int | None) -> str:
    """Aligned columns under a heading per group; a narrow terminal gets two lines per variable instead."""
    cells = [_cells(line) for line in lines]
    widths = [max(len(row[column]) for row in (_HEAD, *cells)) + 2 for column in range(4)]
    room = width - sum(widths) if width else None  # for the meaning
    stacked = room is not None and room < 40
    out = [] if stacked else [_aligned(_HEAD, widths, None)]
    group = ""
    for line, row in zip(lines, cells, strict=True):
        if line.variable.group != group:
            group = line.variable.group
            out.append(f"\n{group}")
        out.append(_stacked(row, width or 80) if stacked else _aligned(row, widths, room))
    return "\n".join(out)


_HEAD = ("  VARIABLE", "VALUE", "DEFAULT", "STATUS", "MEANING")


def _cells(line: Line) -> tuple[str, ...]:
    variable = line.variable
    name = f"* {variable.name}" if line.given else f"  {variable.name}"
    return name, line.value, variable.default_text, variable.status, variable.meaning


def _aligned(row: Sequence[str], widths: Sequence[int], room: int | None) -> str:
    left = "".join(cell.ljust(size) for cell, size in zip(row[:4], widths, strict=True))
    meaning = textwrap.wrap(row[4], room) if room else [row[4]]
    return left + ("\n" + " " * len(left)).join(meaning)


def _stacked(row: Sequence[str], width: int) -> str:
    name, value, default, status, meaning = row
    first = f"{name} = {value}   (default {default}; {status})"
    return (
        first
        + "\n"
        + textwrap.fill(meaning, max(width, 40), initial_indent=" " * 6, subsequent_indent=" " * 6)
    )


def json_report(lines: Sequence[Line], errors: Sequence[str], warnings: Sequence[str], machine: str) -> str:
    """The same for programs."""
    variables = [
        {
            "name": line.variable.name,
            "set": line.given,
            "value": line.value,
            "default": line.variable.default_text,
            "valid": line.variable.parser.valid,
            "status": line.variable.status,
            "group": line.variable.group,
            "meaning": line.variable.meaning,
        }
        for line in lines
    ]
    report = {"variables": variables, "errors": errors, "warnings": warnings, "machine": machine}
    return json.dumps(report, indent=2)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for; status 1 when the environment is wrong."""
    if args.markdown:
        print(markdown(VARIABLES.values()), end="")
        return 0
    every = examine(os.environ)
    errors, warnings = judge(every, os.environ)
    lines = select(every, given_only=args.set, private=args.all)
    if args.json:
        print(json_report(lines, errors, warnings, memory_between_ranks()))
    elif not lines:
        print("no variable is set; `bps env` shows the defaults")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(text_table(lines, width))
        print("\n* set in this environment")
        print(f"\nthis machine: {memory_between_ranks()}")
    if not args.json:
        for text in errors:
            print(f"error: {text}", file=sys.stderr)
        for text in warnings:
            print(f"warning: {text}", file=sys.stderr)
    return 1 if errors else 0
