"""Does a round take longer with more workers, at fixed bytes per worker and as many servers as workers?

    sudo python benchmarks/lab/scaling.py                1 to 8 workers: about two minutes
    sudo python benchmarks/lab/scaling.py --workers 1,2,4
    sudo python benchmarks/lab/scaling.py --tiny         does it run at all?

The jobs of all sizes are ready at once, each in a lab of its own; only one works at a time, and in every
repetition all of them do, in changing order. Theory: every link carries the bytes of one worker whatever
their number, so the time of a round stays M / B, with B what a link carries beside headers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import figures
from common import ETHERNET, arguments, environment, finish, parser
from formulas import optimum_s

from byteps.tools.arguments import list_of, positive
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.lab_cluster import LabCluster
from byteps.tools.bench.screen import table
from byteps.tools.bench.series import Sample, Series
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge
from byteps.tools.lab.layout import Layout
from byteps.tools.units import format_time

WORKERS, TINY_WORKERS = "1,2,3,4,6,8", "1,2"
FLAT = 1.10


def verdicts_of(series: Sequence[Series]) -> list[Verdict]:
    """Time of each number of workers over that of the fewest, repetition by repetition; pure."""
    first = series[0]
    text = f"{{:.3f}} of the time of {first.workers} worker"
    found = []
    for one in series[1:]:
        pairs = zip(one.samples_s, first.samples_s, strict=True)
        goal = Goal(f"{one.workers} workers", text, FLAT, at_most=True)
        found.append(judge(goal, Ratio.of([mine / base for mine, base in pairs])))
    return found


def main() -> int:
    made = parser(__doc__, repeats=3)
    add = made.add_argument
    add("--workers", type=list_of(positive), help=f"numbers of workers ({WORKERS})")
    add("--rate", type=float, default=100.0, metavar="MBIT", help="of a link (%(default)s)")
    add("--mbytes", type=positive, help="of the tensor (16)")
    add("--inner", type=positive, help="rounds of a sample (2)")
    args = arguments(made)
    args.workers = sorted(args.workers or list_of(positive)(TINY_WORKERS if args.tiny else WORKERS))
    args.inner = args.inner or (1 if args.tiny else 2)
    nbytes = (args.mbytes or (2 if args.tiny else 16)) << 20
    with ExitStack() as stack:
        clusters = {
            count: stack.enter_context(
                LabCluster(Layout(count, 0, count), args.rate, ["byteps"], environment(), wire=ETHERNET)
            )
            for count in args.workers
        }

        def sample(one: Series, inner: int) -> Sample:
            return clusters[one.workers].measure("byteps", nbytes, inner)

        rate = args.rate * ETHERNET.efficiency
        least = {count: optimum_s(count, count, nbytes, rate) for count in args.workers}
        series = [
            Series("byteps", count, count, nbytes, args.inner, notes={"optimum_s": least[count]})
            for count in args.workers
        ]
        interleave("scaling", [series], sample, args.repeats)
        for cluster in clusters.values():
            cluster.leave()
    table(
        f"{nbytes >> 20} MB of each worker on links of {args.rate:g} Mbit/s",
        ("workers = servers", "time", "of the optimum", "CPU of all"),
        [
            [
                str(one.workers),
                format_time(one.summary().median),
                f"{one.summary().median / one.notes['optimum_s']:.3f}",
                format_time(one.cpu_s()),
            ]
            for one in series
        ],
    )
    verdicts = verdicts_of(series)
    return finish(args, "scaling", series, verdicts, lambda path: figures.scaling(path, series))


if __name__ == "__main__":
    sys.exit(main())
