"""How close to the optimum of theory is a push-pull on links of a known speed, and how far is Gloo?

    sudo python benchmarks/lab/theory.py                    n = 2, 4, 8 and k = 0, n/2, n: about five minutes
    sudo python benchmarks/lab/theory.py --cases 4+4 --mbytes 64
    sudo python benchmarks/lab/theory.py --tiny             does it run at all?

n worker machines sum one tensor; k more machines have a server only, and with k < n every worker machine has
one too. "time over optimum" is the time of a round over 2n(n-1)M / ((n² + kn - 2k)B), with B the nominal rate
of a link and M the bytes of the tensor: headers count as lost time. Gloo's all_reduce among the same worker
processes on the same links is measured in the same repetitions. What every link carried is compared with the
shares of theory. Links of n = 8 have half the rate: two cores play 16 machines.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import figures
from common import CREDIT, PARTITION_BYTES, arguments, environment, finish, parser, told
from formulas import layout_of, link_bytes, optimum_s, ring_s

from byteps.tools.bench.arguments import list_of, positive
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.lab_cluster import LabCluster
from byteps.tools.bench.screen import table
from byteps.tools.bench.series import Sample, Series, ratio_of
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge
from byteps.tools.bench.units import format_time
from byteps.tools.lab import Traffic

CASES = "2+0,2+1,2+2,4+0,4+2,4+4,8+0,8+4,8+8"
TINY_CASES = "2+1,4+0,4+4"
OVER_OPTIMUM = 1.10
OVER_SHARES = 1.05  # headers are 1 %; more is sent twice
AGAINST_GLOO = {(4, 4): 1.35, (8, 8): 1.5, (4, 0): 1 / 1.02}
HEADER = ("case", "peer", "time", "optimum", "over optimum", "link bytes over shares", "byteps is")


@dataclass(frozen=True)
class Case:
    """n worker machines and k machines with a server only."""

    workers: int
    extra: int

    def __str__(self) -> str:
        return f"n = {self.workers}, k = {self.extra}"


def case(text: str) -> Case:
    """
    >>> case("4+2")
    Case(workers=4, extra=2)
    """
    workers, _, extra = text.partition("+")
    if not (workers.isdecimal() and extra.isdecimal() and int(workers) >= 2):
        raise argparse.ArgumentTypeError(f"{text!r}: expected WORKERS+SERVERS such as 4+2, 2 workers or more")
    return Case(int(workers), int(extra))


class Links:
    """What the links carried beyond the shares of theory, over all samples of one peer."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self.expected = expected
        self.moved: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.rounds = 0

    def add(self, before: Mapping[str, Traffic], after: Mapping[str, Traffic], rounds: int) -> None:
        self.rounds += rounds
        for host in self.expected:
            moved = after[host] - before[host]
            self.moved[host][0] += moved.sent
            self.moved[host][1] += moved.received

    def over_shares(self) -> dict[str, list[float]]:
        """By host: bytes sent and received, as multiples of what theory says."""
        return {
            host: [round(each / (wanted * self.rounds), 4) for each in self.moved[host]]
            for host, wanted in self.expected.items()
        }


def measure(args: argparse.Namespace, one: Case) -> list[Series]:
    """All samples of one case: a lab of its own, both peers interleaved."""
    rate = args.rate if one.workers < 8 else args.rate / 2
    nbytes = args.mbytes << 20
    layout = layout_of(one.workers, one.extra)
    peers = ["byteps", "gloo"] if args.tiny or (one.workers, one.extra) in AGAINST_GLOO else ["byteps"]
    least = {
        "byteps": optimum_s(one.workers, one.extra, nbytes, rate),
        "gloo": ring_s(one.workers, nbytes, rate),
    }
    entrants = [
        Series(peer, one.workers, len(layout.server_hosts) if peer == "byteps" else 0, nbytes, args.inner,
               notes={"case": str(one), "k": one.extra, "rate_mbit": rate, "optimum_s": least[peer]})
        for peer in peers
    ]  # fmt: skip
    links = Links(link_bytes(layout, nbytes))
    settings = environment(BYTEPS_PARTITION_BYTES=args.partition, BYTEPS_SCHEDULING_CREDIT=CREDIT)
    with LabCluster(layout, rate, peers, settings) as cluster:

        def sample(series: Series, inner: int) -> Sample:
            before = cluster.traffic()
            found = cluster.measure(series.peer, nbytes, inner)
            if series.peer == "byteps" and series.samples_s:  # not while tensors are declared
                links.add(before, cluster.traffic(), 1 + inner)
            return found

        interleave(str(one), [entrants], sample, args.repeats)
        cluster.leave()
    entrants[0].notes["over_shares"] = links.over_shares()
    return entrants


def worst(one: Series) -> float:
    """The link that carried the most beyond its share."""
    return float(max(value for pair in one.notes["over_shares"].values() for value in pair))


def over_optimum(one: Series) -> list[float]:
    return [sample / one.notes["optimum_s"] for sample in one.samples_s]


def verdicts_of(series: Sequence[Series]) -> list[Verdict]:
    """One case: pure."""
    ours = series[0]
    name = ours.notes["case"]
    found = [
        judge(Goal(name, "{:.3f} of the optimum", OVER_OPTIMUM, at_most=True), Ratio.of(over_optimum(ours))),
        Verdict(Goal(name, "the fullest link carried {:.3f} of its share", OVER_SHARES, True), worst(ours)),
    ]
    target = AGAINST_GLOO.get((ours.workers, ours.notes["k"]))
    if target is not None:
        goal = Goal(name, "{:.2f} times as fast as Gloo", round(target, 3))
        found.append(judge(goal, ratio_of(series, "gloo")))
    return found


def rows(series: Sequence[Series]) -> list[list[str]]:
    found = []
    for index, one in enumerate(series):
        ratio = ratio_of(series, one.peer) if one.peer != "byteps" else None
        over = Ratio.of(over_optimum(one))
        found.append([
            one.notes["case"] if index == 0 else "",
            one.peer,
            format_time(one.summary().median),
            format_time(one.notes["optimum_s"]),
            f"{over.value:.3f} ({over.q1:.3f} to {over.q3:.3f})",
            f"{worst(one):.3f}" if "over_shares" in one.notes else "",
            told(ratio),
        ])  # fmt: skip
    return found


def main() -> int:
    made = parser(__doc__, repeats=3)
    add = made.add_argument
    add("--cases", type=list_of(case), help=f"workers + server machines ({CASES})")
    add("--rate", type=float, default=200.0, metavar="MBIT", help="of a link, halved for n = 8 (%(default)s)")
    add("--mbytes", type=positive, help="of the tensor (32)")
    add("--inner", type=positive, help="rounds of a sample (%(default)s)", default=2)
    add("--partition", type=positive, default=PARTITION_BYTES, help="BYTEPS_PARTITION_BYTES (%(default)s)")
    args = arguments(made)
    args.cases = args.cases or list_of(case)(TINY_CASES if args.tiny else CASES)
    args.mbytes = args.mbytes or (4 if args.tiny else 32)
    panels = {one: measure(args, one) for one in args.cases}
    args.cases = list(map(str, args.cases))
    table("push-pull on links", HEADER, [row for series in panels.values() for row in rows(series)])
    everything = [one for series in panels.values() for one in series]
    verdicts = [verdict for series in panels.values() for verdict in verdicts_of(series)]
    return finish(args, "theory", everything, verdicts, lambda path: figures.theory(path, everything))


if __name__ == "__main__":
    sys.exit(main())
