"""How close to the optimum of theory is a push-pull on links of a known speed, and how far is Gloo?

    sudo python benchmarks/lab/theory.py                    about twelve minutes, see plans.usual
    sudo python benchmarks/lab/theory.py --cases 4+4,8+8 --loads 64M,bert-base
    sudo python benchmarks/lab/theory.py --mtu 1500,9000 --queues 10,100 --hostname clone
    sudo python benchmarks/lab/theory.py --rates 1000 --cases 4+4
    sudo python benchmarks/lab/theory.py --tiny             does it run at all?

n worker machines sum gradients; k more machines have a server only, and with k < n every worker machine has
one too. Nothing is set beyond who is in the job. "over optimum" is the time of a round over 2n(n-1)M / ((n² +
kn - 2k)B), with M the bytes of the gradients and B what a link carries of them beside the headers of its MTU.
Gloo's all_reduce among the same worker processes on the same links is measured in the same repetitions; its
optimum is that of a ring. What every link carried is compared with the shares of theory. Links of n = 8 have
half the rate: two cores play 16 machines.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

import figures
from common import ETHERNET, arguments, environment, finish, parser, told
from formulas import layout_of, link_bytes, optimum_s, ring_s
from plans import USUAL_LOAD, Load, Plan, case, chosen, kind, load, usual

from byteps.tools.arguments import list_of, positive
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.lab_cluster import LabCluster
from byteps.tools.bench.screen import table
from byteps.tools.bench.series import Sample, Series, ratio_of
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge
from byteps.tools.lab import Losses, Traffic, Wire
from byteps.tools.units import format_time

PEERS = ("byteps", "gloo")
TINY_CASES, TINY_LOADS = "2+1,4+0,4+4", "4M"
OVER_OPTIMUM = {2: 1.05, 4: 1.05, 8: 1.10}  # by workers
# Links count what the kernel hands over, up to 64 KB with one header: headers of the MTU are not in it, and
# what is more than some acknowledgements was sent twice.
OVER_SHARES = 1.05
AGAINST_GLOO = {(4, 4): 1.35, (8, 8): 1.5, (4, 0): 1 / 1.02}
HEADER = ("lab", "load", "peer", "time", "over optimum", "fullest link", "resent", "CPU s/GB", "byteps is")


class Links:
    """What the links carried beyond the shares of theory, and lost, over all samples of one series."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self.expected = expected
        self.moved: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.lost = Losses(0, 0)
        self.rounds = 0

    def add(
        self, before: Mapping[str, Traffic], after: Mapping[str, Traffic], lost: Losses, rounds: int
    ) -> None:
        self.rounds += rounds
        self.lost = Losses(self.lost.resent + lost.resent, self.lost.dropped + lost.dropped)
        for host in self.expected:
            moved = after[host] - before[host]
            self.moved[host][0] += moved.sent
            self.moved[host][1] += moved.received

    def notes(self) -> dict[str, object]:
        """By host: bytes sent and received, as multiples of what theory says; what was lost in a round."""
        if not self.rounds:
            return {}
        return {
            "over_shares": {
                host: [round(each / (wanted * self.rounds), 4) for each in self.moved[host]]
                for host, wanted in self.expected.items()
            },
            "resent_per_round": round(self.lost.resent / self.rounds, 1),
            "dropped_per_round": round(self.lost.dropped / self.rounds, 1),
        }


def entrants(plan: Plan, one: Load, inner: int) -> list[Series]:
    """A series of each peer, with all that a reader needs to know in its notes. Pure."""
    layout = layout_of(plan.case.workers, plan.case.extra)
    least = {
        "byteps": optimum_s(plan.case.workers, plan.case.extra, one.nbytes, plan.rate_mbit),
        "gloo": ring_s(plan.case.workers, one.nbytes, plan.rate_mbit),
    }
    servers = {"byteps": len(layout.server_hosts), "gloo": 0}
    notes = {
        "case": str(plan.case),
        "k": plan.case.extra,
        "rate_mbit": plan.rate_mbit,
        "load": one.name,
        "mtu": plan.wire.mtu,
        "queue_ms": plan.wire.queue_ms,
        "one_name": plan.wire.one_name,
        "kind": kind(plan, one),
    }
    found = []
    for peer in PEERS:
        made = Series(peer, plan.case.workers, servers[peer], one.nbytes, inner)
        made.tensors = len(one.tensors(peer) or [peer])
        made.notes = {**notes, "optimum_s": least[peer] / plan.wire.efficiency}
        found.append(made)
    return found


def measure(args: argparse.Namespace, plan: Plan) -> list[list[Series]]:
    """One lab: all its loads, both peers of each interleaved."""
    layout = layout_of(plan.case.workers, plan.case.extra)
    loads = {one.name: one for one in plan.loads}
    settings = [entrants(plan, one, args.inner or one.inner) for one in plan.loads]
    links = {
        (one.peer, one.notes["load"]): Links(link_bytes(layout, one.nbytes) if one.peer == "byteps" else {})
        for series in settings
        for one in series
    }
    with LabCluster(layout, plan.rate_mbit, PEERS, environment(), wire=plan.wire) as cluster:

        def sample(series: Series, inner: int) -> Sample:
            one, peer = loads[series.notes["load"]], series.peer
            tensors = one.tensors(peer)
            before, lost = cluster.traffic(), cluster.losses()
            if tensors is None:
                found = cluster.measure(peer, one.nbytes, inner)
            else:  # Gloo's buckets are a set of their own, though they lie in the same kind of memory
                found = cluster.measure_many(peer, f"{one.name}.{peer}", tensors, inner)
            if series.samples_s:  # not while tensors are declared
                links[peer, one.name].add(before, cluster.traffic(), cluster.losses() - lost, 1 + inner)
            return found

        # One load warms connections and caches for all; each sample begins with a round that is not timed.
        interleave(lab_name(plan), settings, sample, args.repeats, warm=settings[0])
        cluster.leave()
    for series in settings:
        for one in series:
            one.notes |= links[one.peer, one.notes["load"]].notes()
            one.notes["cpu_s_per_gb"] = one.cpu_s_per_gb()
    return settings


def lab_name(plan: Plan) -> str:
    """
    >>> from plans import Case
    >>> lab_name(Plan(Case(4, 2), 200, Wire(9000, 10), ()))
    '4+2, 200 Mbit/s, MTU 9000, 10 ms'
    """
    wire = plan.wire
    name = f"{plan.case}, {plan.rate_mbit:g} Mbit/s"
    if (wire.mtu, wire.queue_ms) != (ETHERNET.mtu, ETHERNET.queue_ms):
        name += f", MTU {wire.mtu}, {wire.queue_ms:g} ms"
    return name + (", one name" if wire.one_name else "")


def worst(one: Series) -> float:
    """The link that carried the most beyond its share."""
    return float(max(value for pair in one.notes["over_shares"].values() for value in pair))


def over_optimum(one: Series) -> list[float]:
    return [sample / one.notes["optimum_s"] for sample in one.samples_s]


def verdicts_of(name: str, series: Sequence[Series]) -> list[Verdict]:
    """One load in one lab: pure. What is shorter than the usual load has no time to fill the links."""
    ours = series[0]
    subject = f"{name}, {ours.notes['load']}"
    if ours.nbytes < USUAL_LOAD.nbytes:
        return [judge(Goal(subject, "{:.2f} times as fast as Gloo", 1.0), ratio_of(series, "gloo"))]
    target = OVER_OPTIMUM.get(ours.workers, max(OVER_OPTIMUM.values()))
    found = [
        judge(Goal(subject, "{:.3f} of the optimum", target, at_most=True), Ratio.of(over_optimum(ours)))
    ]
    if "over_shares" in ours.notes:
        goal = Goal(subject, "the fullest link carried {:.3f} of its share", OVER_SHARES, at_most=True)
        found.append(Verdict(goal, worst(ours)))
    against = AGAINST_GLOO.get((ours.workers, ours.notes["k"]))
    if against is not None:
        goal = Goal(subject, "{:.2f} times as fast as Gloo", round(against, 3))
        found.append(judge(goal, ratio_of(series, "gloo")))
    return found


def rows(name: str, series: Sequence[Series]) -> list[list[str]]:
    found = []
    for index, one in enumerate(series):
        over = Ratio.of(over_optimum(one))
        on_workers, on_servers = one.notes["cpu_s_per_gb"]
        found.append([
            "" if index else name,
            "" if index else one.notes["load"],
            one.peer,
            format_time(one.summary().median),
            f"{over.value:.3f} ({over.q1:.3f} to {over.q3:.3f})",
            f"{worst(one):.3f}" if one.notes.get("over_shares") else "",
            f"{one.notes['resent_per_round']:g}" if "resent_per_round" in one.notes else "",
            f"{on_workers:.2f}" + (f" + {on_servers:.2f}" if one.servers else ""),
            told(ratio_of(series, one.peer)) if one.peer != "byteps" else "",
        ])  # fmt: skip
    return found


def rate(text: str) -> float:
    return float(positive(text))


def plans_of(args: argparse.Namespace) -> list[Plan]:
    """What the options ask for; without any, the usual ones. Pure."""
    wires = None
    if args.mtu or args.queues or args.hostname:
        wires = [
            Wire(mtu, queue_ms, one_name=args.hostname)
            for mtu in args.mtu or [ETHERNET.mtu]
            for queue_ms in args.queues or [ETHERNET.queue_ms]
        ]
    if args.tiny:
        return chosen(
            args.cases or list_of(case)(TINY_CASES),
            args.rates,
            args.loads or list_of(load)(TINY_LOADS),
            wires,
        )
    if not (args.cases or args.rates or args.loads or wires):
        return usual()
    return chosen(args.cases, args.rates, args.loads, wires)


def main() -> int:
    made = parser(__doc__, repeats=3)
    add = made.add_argument
    add("--cases", type=list_of(case), metavar="N+K", help="workers + server machines, such as 4+4,8+8")
    add("--rates", type=list_of(rate), metavar="MBIT", help="of a link (200; 100 for n = 8)")
    add("--loads", type=list_of(load), help=f"such as 16M,64M,resnet50,bert-base ({USUAL_LOAD.name})")
    add("--mtu", type=list_of(positive), help=f"of the links, such as 1500,9000 ({ETHERNET.mtu})")
    add("--queues", type=list_of(positive), metavar="MS", help=f"before a full link ({ETHERNET.queue_ms:g})")
    add("--hostname", default="", metavar="NAME", help="of all hosts, as clones have it")
    add("--inner", type=positive, help="rounds of a sample (as many as make 32 MB, at most 10)")
    args = arguments(made)
    plans = plans_of(args)
    panels = [(lab_name(plan), series) for plan in plans for series in measure(args, plan)]
    args.cases, args.loads = ([str(each) for each in given or []] for given in (args.cases, args.loads))
    table("push-pull on links", HEADER, [row for name, series in panels for row in rows(name, series)])
    everything = [one for _, series in panels for one in series]
    verdicts = [verdict for name, series in panels for verdict in verdicts_of(name, series)]
    return finish(args, "theory", everything, verdicts, lambda path: figures.theory(path, everything))


if __name__ == "__main__":
    sys.exit(main())
