"""The command ``bps``: looks at the configuration and measures, one module per subcommand.

A subcommand is a module with ``add_parser(subparsers)`` and ``run(args) -> int | None``. Only the module that
was asked for is imported: ``bps env`` is fast, and works where the needs of another are not installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

from byteps.errors import BytePSError, ConfigError
from byteps.observe.reader import with_a_reader
from byteps.version import __version__


class Command(NamedTuple):
    """Where a subcommand lives and what ``bps --help`` says about it."""

    module: str
    summary: str
    extra: str = ""  # the optional dependencies it needs, as in ``pip install byteps-train[EXTRA]``


COMMANDS = {
    "env": Command("byteps.tools.env", "show every environment variable and the value in force"),
    "doctor": Command("byteps.tools.doctor", "find what makes jobs fail or run slowly"),
    "bench": Command("byteps.tools.bench", "measure push-pull beside Gloo and plain sockets", extra="bench"),
    "trace": Command("byteps.tools.trace", "merge and show what the members of a job have recorded"),
    "top": Command("byteps.tools.top", "what a running job does, live"),
    "dump": Command("byteps.tools.dump", "let every member of a running job write its last seconds"),
    "lab": Command("byteps.tools.lab.run", "run a job on hosts that this machine plays, with slow links"),
    "version": Command("byteps.tools.version", "show the version of package, protocol and Python"),
}

_EXAMPLES = """\
examples:
  bps env                       every variable, its value here, and what it means
  bps env --set                 only those that are set in this shell
  DMLC_NUM_WORKER=2 bps env     try a setting before a job runs with it
  bps doctor                    what would make a job fail here, with remedies
  bps bench push-pull           how fast is this machine, and how far from the bound
  bps top 10.0.0.1:9000         what a running job does, and who is waited for
  bps trace show DIR            where the time of a recorded job went
  bps lab --rate 1gbit CMD      a job on several hosts that this machine plays (as root)

One command is taught by: bps COMMAND --help. Jobs are started with bpslaunch."""


def build_parser(wanted: str | None) -> argparse.ArgumentParser:
    """The parser of ``bps``; only the subcommand ``wanted`` gets its own options."""
    parser = argparse.ArgumentParser(
        prog="bps",
        description="Tools around a byteps job.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bps {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, command in COMMANDS.items():
        if name == wanted:
            importlib.import_module(command.module).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=command.summary)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status: 0 good, 1 the command failed, 2 wrong arguments or settings."""
    return with_a_reader(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    wanted = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        parser = build_parser(wanted)
        args = parser.parse_args(arguments)
        if wanted is None:
            parser.print_help()
            return 2
        status: int | None = importlib.import_module(COMMANDS[wanted].module).run(args)
        return status or 0
    except ImportError as error:
        return _fail(_missing(wanted or "", error), 1)
    except ConfigError as error:
        return _fail(str(error), 2)
    except BytePSError as error:
        return _fail(str(error), 1)


def _missing(name: str, error: ImportError) -> str:
    extra = COMMANDS[name].extra if name in COMMANDS else ""
    remedy = f"; install it with: pip install 'byteps-train[{extra}]'" if extra else ""
    return f"bps {name} cannot start: {error}{remedy}"


def _fail(text: str, status: int) -> int:
    for line in text.splitlines():
        print(f"bps: error: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
