"""How long is a step of training when communication overlaps with computation, beside torch's DDP over Gloo?

    sudo python benchmarks/lab/overlap.py                      four networks, two speeds: about twelve minutes
    sudo python benchmarks/lab/overlap.py --networks vgg16 --gbit 10
    sudo python benchmarks/lab/overlap.py --servers 0          servers beside the workers only
    sudo python benchmarks/lab/overlap.py --tiny               does it run at all?

Four workers and four servers train VGG-16, AlexNet, ResNet-50 and BERT-large. Computing is simulated by
sleeping; sizes are those of the networks, times are operations over an assumed speed (networks.py). Bytes,
links and times are divided together for what two cores can drive (scaled.py). The methods:

  alone          no communication: what computing takes
  ddp-gloo       torch's DistributedDataParallel over Gloo, buckets of 25 MB, divided as the bytes are
  fifo           our DistributedOptimizer without priorities
  priority       our DistributedOptimizer: the first layer's gradient is the most urgent
  cross-barrier  our CrossBarrier: a layer of the next forward pass waits for its own gradient only

The bound is the larger of computing and of the least time of communication, with headers. "ideal" is a
simulation of a perfect cross barrier: it knows that a gradient cannot be sent before it is made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import figures
from common import ETHERNET, arguments, environment, finish, parser, told
from formulas import layout_of, optimum_s
from networks import NETWORKS
from scaled import Scaled, ideal_s, scaled

from byteps.tools.arguments import list_of, natural, one_of, positive
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.lab_cluster import LabCluster
from byteps.tools.bench.members import Message
from byteps.tools.bench.screen import table
from byteps.tools.bench.series import Sample, Series, ratio_of
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge
from byteps.tools.bench.team import STEP_TIMEOUT_S
from byteps.tools.units import format_time

METHODS = ("alone", "ddp-gloo", "fifo", "priority", "cross-barrier")
CROSS, THEIRS = "cross-barrier", "ddp-gloo"
SPEEDUP_GOAL, SPEEDUP_NETWORKS = 1.5, ("vgg16", "alexnet")
BOUND_GOAL = 1.10
# What a message, a call in Python and the first and last pieces of a step cost is not divided with the bytes:
# VGG-16 at 1 Gbit/s takes 1.05 of the bound with 16 MB and 1.04 with 32.
KBYTES, TINY_KBYTES = 32768, 512
# Gradients are made anew in every step. Memory that went back to the system in between would be cleared page
# by page by cores that are to be free: of VGG-16 that is 9 ms of a backward pass instead of one.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": 1 << 30, "MALLOC_TRIM_THRESHOLD_": 1 << 30}
HEADER = ("network, link", "method", "step", "of the bound", "than DDP over Gloo")


def title(network: str, gbit: int) -> str:
    return f"{network}, {gbit} Gbit/s"


def measure(args: argparse.Namespace, name: str) -> list[list[Series]]:
    """One network, with both speeds of links interleaved: the lab is the same, only computing differs."""
    network = NETWORKS[name]()
    # How often a link carries all gradients, at least: once if every worker has a machine for a server.
    passes = optimum_s(args.workers, args.servers, 1_000_000, 8)
    of_link = ETHERNET.efficiency / passes  # the part of a link's rate that is there for one pass
    steps = {
        gbit: scaled(network, args.kbytes << 10, gbit * 1000 * of_link, args.rate * of_link)
        for gbit in args.gbit
    }
    first = next(iter(steps.values()))
    peers, settings = ["byteps", "gloo"], environment(**KEEP_MEMORY)
    layout = layout_of(args.workers, args.servers)
    with LabCluster(layout, args.rate, peers, settings, "overlap_worker", wire=ETHERNET) as cluster:
        build: Message = {
            "do": "build",
            "peers": METHODS,
            "elements": [elements for elements, _, _ in first.layers],
            "bucket_mb": first.bucket_mb,
        }
        cluster.members.ask(dict.fromkeys(cluster.worker_names, build), STEP_TIMEOUT_S)

        def sample(one: Series, inner: int) -> Sample:
            times = [(forward, backward) for _, forward, backward in steps[one.notes["gbit"]].layers]
            request = {"do": "steps", "peer": one.peer, "inner": inner, "times": times}
            return cluster.sample("byteps", request, {}, inner)

        series = [entrants(args, name, gbit, step) for gbit, step in steps.items()]
        # The same tensors at both speeds: declared once, warm once.
        interleave(name, series, sample, args.repeats, warm=series[0])
        cluster.leave()
    return series


def entrants(args: argparse.Namespace, name: str, gbit: int, step: Scaled) -> list[Series]:
    notes = {
        "network": name,
        "gbit": gbit,
        "real_bytes": NETWORKS[name]().nbytes,
        "bytes_factor": step.bytes_factor,
        "time_factor": step.time_factor,
        "compute_s": step.compute_s,
        "communication_s": step.communication_s,
        "bound_s": step.bound_s,
        "ideal_s": ideal_s(step),
    }
    tensors = sum(len(elements) for elements, _, _ in step.layers)
    return [
        Series(
            method, args.workers, args.servers, step.nbytes, args.inner, tensors=tensors, notes=dict(notes)
        )
        for method in METHODS
    ]


def of_bound(one: Series) -> list[float]:
    return [sample / one.notes["bound_s"] for sample in one.samples_s]


def verdicts_of(series: Sequence[Series]) -> list[Verdict]:
    """One network at one speed; pure."""
    by_method = {one.peer: one for one in series}
    ours = by_method[CROSS]
    network = ours.notes["network"]
    subject = f"{title(network, ours.notes['gbit'])}, cross barrier"
    is_apart = ours.servers >= ours.workers  # else a link carries as much as in a ring, or nearly
    target = SPEEDUP_GOAL if is_apart and network in SPEEDUP_NETWORKS else 1.0
    faster = judge(
        Goal(subject, "{:.2f} times as fast as DDP over Gloo", target), ratio_of(series, THEIRS, CROSS)
    )
    possible = ours.notes["ideal_s"] / ours.notes["bound_s"]
    text = f"{{:.3f}} of the bound (ideal {possible:.3f})"
    return [faster, judge(Goal(subject, text, BOUND_GOAL, at_most=True), Ratio.of(of_bound(ours)))]


def rows(series: Sequence[Series]) -> list[list[str]]:
    found = []
    for index, one in enumerate(series):
        head = title(one.notes["network"], one.notes["gbit"]) if index == 0 else ""
        ratio = ratio_of(series, THEIRS, one.peer) if one.peer not in ("alone", THEIRS) else None
        of = Ratio.of(of_bound(one))
        cells = [
            format_time(one.summary().median),
            f"{of.value:.3f} ({of.q1:.3f} to {of.q3:.3f})",
            told(ratio),
        ]
        found.append([head, one.peer, *cells])
    notes = series[0].notes
    found.append(
        ["", "ideal", format_time(notes["ideal_s"]), f"{notes['ideal_s'] / notes['bound_s']:.3f}", ""]
    )
    return found


def main() -> int:
    made = parser(__doc__, repeats=3)
    add = made.add_argument
    add("--networks", type=list_of(one_of(list(NETWORKS))), default=",".join(NETWORKS), help="(%(default)s)")
    add("--gbit", type=list_of(positive), default="1,10", help="links to simulate (%(default)s)")
    add("--workers", type=positive, help="(4)")
    add(
        "--servers",
        type=natural,
        metavar="N",
        help="on machines of their own (as many as workers); with fewer, each worker has one beside it too",
    )
    add("--rate", type=float, default=200.0, metavar="MBIT", help="of a link of the lab (%(default)s)")
    add("--kbytes", type=positive, help=f"of all gradients in the lab ({KBYTES})")
    add("--inner", type=positive, help="steps of a sample (2)")
    args = arguments(made)
    args.workers = args.workers or (2 if args.tiny else 4)
    args.servers = args.workers if args.servers is None else args.servers
    args.kbytes = args.kbytes or (TINY_KBYTES if args.tiny else KBYTES)
    args.inner = args.inner or (1 if args.tiny else 2)
    settings = [series for name in args.networks for series in measure(args, name)]
    table("a step of training", HEADER, [row for series in settings for row in rows(series)])
    verdicts = [verdict for series in settings for verdict in verdicts_of(series)]
    everything = [one for series in settings for one in series]
    return finish(args, "overlap", everything, verdicts, lambda path: figures.overlap(path, settings))


if __name__ == "__main__":
    sys.exit(main())
