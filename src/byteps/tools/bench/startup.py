"""``bps bench startup``: how long from the command to the first sum, beside torchrun and Python itself?"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from byteps.errors import ConfigError
from byteps.tools.arguments import list_of, one_of, positive
from byteps.tools.bench import report
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.machine import busy
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Series
from byteps.tools.bench.startup_run import ALONE, PEERS, measure
from byteps.tools.bench.stats import Goal, Summary, Verdict, summarize
from byteps.tools.units import format_time

__all__ = ["add_parser", "beyond", "run"]

MAX_BEYOND_S = 1.5  # from the command to the first sum, beyond the import of the framework
MAX_IMPORT_S = 0.150  # of byteps alone, beyond the start of Python

_DESCRIPTION = """\
Measure the time from the command line to the first sum on the last rank, with all processes on this machine:
bpslaunch with and without a server, and torchrun with Gloo's all_reduce. Beside them as bounds, as many
processes at once: Python that does nothing, and Python that imports the framework. And one process that
imports byteps, beside one that does nothing. Times are wall times; CPU times of all processes together, which
other programs disturb less, are beside them."""

_EPILOG = """\
examples:
  bps bench startup                                 8 ranks, with PyTorch
  bps bench startup --framework numpy --ranks 2,8
  bps bench startup --peers byteps,imports --repeats 9"""


def add_parser(subparsers: Any) -> None:
    """Add ``startup`` to the parser of ``bps bench``."""
    parser = subparsers.add_parser(
        "startup",
        help="from the command to the first sum, beside torchrun",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", type=list_of(positive), default="8", help="numbers of ranks (%(default)s)")
    add("--framework", choices=("torch", "numpy"), default="torch", help="what ranks import (%(default)s)")
    add("--peers", type=list_of(one_of(list(PEERS))), default=",".join(PEERS), help="(%(default)s)")
    add("--repeats", type=positive, default=5, metavar="N", help="repetitions (%(default)s)")
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write files; the status is 0 whatever the goals say, unless --check was given."""
    if args.framework == "torch" and importlib.util.find_spec("torch") is None:
        raise ConfigError("bps bench startup needs PyTorch, or --framework numpy: pip install torch")
    if remark := busy():
        say(remark)
    peers = [peer for peer in args.peers if peer != "torchrun" or args.framework == "torch"]
    settings = [[Series(peer, ranks, 0, 4, 1) for peer in peers] for ranks in args.ranks]
    interleave(
        "start-up", settings, lambda one, _: measure(one.peer, one.workers, args.framework), args.repeats
    )
    series = [one for entrants in settings for one in entrants]
    header = ("what", "ranks", "to the first sum", "spread", "CPU time")
    table(f"start-up with {args.framework}", header, [_row(one) for one in series])
    verdicts = [verdict for entrants in settings for verdict in _verdicts(entrants, args.framework)]
    for verdict in verdicts:
        say(verdict.line())
    path = args.output / "startup.json"
    report.write(path, "startup", {**vars(args), "output": str(args.output)}, series, verdicts)
    say(f"all samples: {path}")
    return 1 if args.check and not all(verdict.reached for verdict in verdicts) else 0


def beyond(series: list[Series], peer: str, base: str) -> tuple[Summary, Summary] | None:
    """By how much ``peer`` takes longer than ``base``, repetition by repetition: wall and CPU seconds."""
    found = {one.peer: one for one in series if one.samples_s}
    if peer not in found or base not in found:
        return None
    ours, theirs = found[peer], found[base]
    wall = [a - b for a, b in zip(ours.samples_s, theirs.samples_s, strict=True)]
    cpu = [a - b for a, b in zip(ours.samples_cpu_s, theirs.samples_cpu_s, strict=True)]
    return summarize(wall), summarize(cpu)


def _verdicts(series: list[Series], framework: str) -> list[Verdict]:
    ranks = series[0].workers
    wanted = [
        ("byteps", "imports", MAX_BEYOND_S, f"first sum beyond import {framework}"),
        ("byteps+server", "imports", MAX_BEYOND_S, f"the same through a server, beyond import {framework}"),
        ("import byteps", "python x1", MAX_IMPORT_S, "import byteps beyond python -c pass"),
    ]
    found = []
    for peer, base, target, subject in wanted:
        pair = beyond(series, peer, base)
        if pair is not None:
            wall, cpu = pair
            text = "{:.3f} s (" + f"{cpu.median:.3f} s of CPU)"
            count = 1 if peer in ALONE else ranks
            goal = Goal(f"{subject}, {count} at once", text, target, at_most=True)
            found.append(Verdict(goal, wall.median, wall.q1, wall.q3))
    return found


def _row(one: Series) -> list[str]:
    summary = one.summary()
    spread = f"{format_time(summary.q1)} to {format_time(summary.q3)}"
    count = "1" if one.peer in ALONE else str(one.workers)
    return [one.peer, count, format_time(summary.median), spread, format_time(one.cpu_s())]
