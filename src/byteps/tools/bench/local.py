"""``bps bench local``: how fast do ranks of one machine sum, beside Gloo and beside memory itself?"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from byteps.errors import ConfigError
from byteps.tools.arguments import list_of, one_of, positive, size
from byteps.tools.bench import gradient_sets, local_goals, local_measure
from byteps.tools.bench.local_measure import GRADIENT_RANKS, Options
from byteps.tools.bench.machine import busy
from byteps.tools.bench.screen import say, table

__all__ = ["add_parser", "run"]

PEERS = ("byteps", "arena", "gloo", "bound")
NO_GRADIENTS = "none"

_DESCRIPTION = """\
Measure sums of float32 among ranks of this machine, without servers: tensors in plain memory (byteps) and in
memory from byteps.empty() (arena), beside Gloo's all_reduce among the same processes and beside the bound: a
plain program that sums the same buffers in shared memory in place. Then all gradients of ResNet-50 and
BERT-base in backward order, beside all_reduce of 25 MB buckets. All are measured in every repetition, in
changing order. Every sum is checked."""

_EPILOG = """\
examples:
  bps bench local                                  all sizes with 2 and 4 ranks, both sets of gradients
  bps bench local --sizes 64M --ranks 2 --gradients none
  bps bench local --ranks 8 --sizes 1M             more ranks than cores
  bps bench local --peers gloo,bound               only what we compare with"""


def add_parser(subparsers: Any) -> None:
    """Add ``local`` to the parser of ``bps bench``."""
    parser = subparsers.add_parser(
        "local",
        help="sums among ranks of this machine, and the gradients of two networks",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    sets = [*gradient_sets.SETS, NO_GRADIENTS]
    add("--sizes", type=list_of(size), default="4K,1M,64M", help="tensor sizes (%(default)s)")
    add("--ranks", type=list_of(_several), default="2,4", help="numbers of ranks (%(default)s)")
    add("--peers", type=list_of(one_of(PEERS)), default=",".join(PEERS), help="whom to measure (%(default)s)")
    add(
        "--gradients",
        type=list_of(one_of(sets)),
        default=",".join(gradient_sets.SETS),
        help=f"sets of gradients, with {GRADIENT_RANKS} ranks, or {NO_GRADIENTS} (%(default)s)",
    )
    add("--repeats", type=positive, default=15, metavar="N", help="repetitions (%(default)s)")
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write files; the status is 0 whatever the goals say, unless --check was given."""
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("bps bench local needs PyTorch, for Gloo and for tensors: pip install torch")
    options = Options(
        sizes=tuple(args.sizes),
        ranks=tuple(args.ranks),
        peers=tuple(args.peers),
        gradients=tuple(name for name in args.gradients if name != NO_GRADIENTS),
        repeats=args.repeats,
        output=args.output,
    )
    if remark := busy():
        say(remark)
    lines = local_measure.sizes(options)
    if options.gradients:
        lines += local_measure.gradients(options)
    table("ratios of speed, and the goals", local_goals.HEADER, [local_goals.row(line) for line in lines])
    verdicts = local_goals.verdicts(lines)
    return 1 if args.check and not all(verdict.reached for verdict in verdicts) else 0


def _several(text: str) -> int:
    ranks = positive(text)
    if ranks == 1:
        raise argparse.ArgumentTypeError("at least 2 ranks expected: one has nothing to sum")
    return ranks
