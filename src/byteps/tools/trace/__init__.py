"""``bps trace``: read what members of a job have recorded, in traces or by their flight recorders."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from byteps.observe.merging import MERGED, load, merge
from byteps.observe.summary import summary
from byteps.observe.verdict import verdict
from byteps.observe.walk import walked
from byteps.tools.trace.show import lines

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  bpslaunch --trace DIR ...       record steps 10 to 20 of a job, and merge at its end
  bps trace merge DIR             one file for https://ui.perfetto.dev: DIR/merged.json
  bps trace show DIR              where the time went, by tensor; who came last; what was hidden
  bps trace show DIR --json       the same for programs

Jobs on several machines leave their recordings there: copy them into one folder, or name several."""


def add_parser(subparsers: Any) -> None:
    """The options of this subcommand."""
    parser = subparsers.add_parser(
        "trace",
        help="merge and show what the members of a job have recorded",
        description="Read recordings of a job: of BYTEPS_TRACE_ON=1, or of its flight recorders.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    merging = actions.add_parser("merge", help="one file for Perfetto, with all members on one clock")
    merging.add_argument("folders", nargs="+", metavar="DIR", type=Path, help="folder or file of recordings")
    merging.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"what to write (default: DIR/{MERGED})"
    )
    showing = actions.add_parser("show", help="print the summary")
    showing.add_argument("folders", nargs="+", metavar="DIR", type=Path, help="folder or file of recordings")
    showing.add_argument("--json", action="store_true", help="for programs")
    showing.add_argument(
        "--top", type=int, default=20, metavar="N", help="the N slowest tensors (default: 20)"
    )


def run(args: argparse.Namespace) -> int:
    """Merge or show."""
    recordings = load(args.folders)
    if args.action == "merge":
        first = args.folders[0]
        output = args.output or (first if first.is_dir() else first.parent) / MERGED
        merge(recordings, output)
        print(f"{output}: {', '.join(str(each.header) for each in recordings)}")
        return 0
    found, why = summary(recordings), verdict(walked(recordings))
    if args.json:
        import msgspec

        json.dump({**msgspec.to_builtins(found), "verdict": msgspec.to_builtins(why)}, sys.stdout, indent=1)
        print()
    else:
        print("\n".join([*lines(found, args.top), "", f"verdict: {why.text()}"]))
    return 0
