"""``bps bench push-pull``: how fast is a sum over all workers through a server, beside Gloo and the bound?"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from byteps.errors import ConfigError
from byteps.tools.arguments import list_of, one_of, positive, size
from byteps.tools.bench import push_pull_encrypted, push_pull_many, push_pull_memory, push_pull_sizes
from byteps.tools.bench.bound import Shape
from byteps.tools.bench.machine import busy
from byteps.tools.bench.options import Options
from byteps.tools.bench.screen import say
from byteps.tools.bench.stats import Verdict

__all__ = ["add_parser", "run"]

PEERS = ("byteps", "gloo", "bound")

_DESCRIPTION = """\
Measure push-pull of float32 tensors over TCP on this machine, beside Gloo's all_reduce among the same workers
and beside the bound: plain blocking sockets that move and sum the same bytes with no protocol. All three are
measured in every repetition, in changing order. Every sum is checked."""

_EPILOG = """\
examples:
  bps bench push-pull                                  all sizes, 1 and 2 workers with 1 server
  bps bench push-pull --sizes 64M --workers 2          one size, one cluster
  bps bench push-pull --many                           1,000 small tensors at once
  bps bench push-pull --server-memory                  server memory over 10,000 rounds
  bps bench push-pull --encrypt --sizes 64M            what encryption costs on this machine
  BYTEPS_PARTITION_BYTES=1024000 bps bench push-pull   try a setting"""


def add_parser(subparsers: Any) -> None:
    """Add ``push-pull`` to the parser of ``bps bench``."""
    parser = subparsers.add_parser(
        "push-pull",
        help="sums of one tensor, of 1,000 small tensors, and the memory of the server",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to measure (without any of these: one tensor of each size)")
    what.add_argument("--many", action="store_true", help="many small tensors, all started at once")
    what.add_argument("--server-memory", action="store_true", help="memory of the server over many rounds")
    what.add_argument("--encrypt", action="store_true", help="encrypted beside plain, and beside the cipher")
    what.add_argument("--all", action="store_true", help="everything, one after the other")
    add = parser.add_argument
    add("--sizes", type=list_of(size), default="4K,64K,1M,16M,64M", help="tensor sizes (%(default)s)")
    add("--workers", type=list_of(positive), default="1,2", help="numbers of workers (%(default)s)")
    add("--servers", type=list_of(positive), default="1", help="numbers of servers (%(default)s)")
    add("--peers", type=list_of(one_of(PEERS)), default=",".join(PEERS), help="whom to measure (%(default)s)")
    add("--repeats", type=positive, default=15, metavar="N", help="repetitions (%(default)s)")
    add("--tensors", type=positive, default=1000, metavar="N", help="tensors of --many (%(default)s)")
    add("--rounds", type=positive, default=10_000, metavar="N", help="of --server-memory (%(default)s)")
    add("--large-set", type=size, default="256M", metavar="SIZE", help="of --server-memory (%(default)s)")
    add(
        "--bound-shape",
        type=Shape.parse,
        metavar="SHAPE",
        help="STREAMSxCHUNKxWINDOW, such as 2x131072x2: do not look for the fastest shape of the bound",
    )
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write files; the status is 0 whatever the goals say, unless --check was given."""
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("bps bench push-pull needs PyTorch, for Gloo and for tensors: pip install torch")
    options = Options(
        sizes=tuple(args.sizes),
        workers=tuple(args.workers),
        servers=tuple(args.servers),
        peers=tuple(args.peers),
        repeats=args.repeats,
        tensors=args.tensors,
        rounds=args.rounds,
        large_set=args.large_set,
        bound_shape=args.bound_shape,
        output=args.output,
    )
    if remark := busy():
        say(remark)
    verdicts: list[Verdict] = []
    if args.all or not (args.many or args.server_memory or args.encrypt):
        verdicts += push_pull_sizes.run(options)
    if args.all or args.many:
        verdicts += push_pull_many.run(options)
    if args.all or args.encrypt:
        verdicts += push_pull_encrypted.run(options)
    if args.all or args.server_memory:
        verdicts += push_pull_memory.run(options)
    say("")
    for verdict in verdicts:
        say(verdict.line())
    return 1 if args.check and not all(verdict.reached for verdict in verdicts) else 0
