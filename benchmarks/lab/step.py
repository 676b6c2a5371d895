"""How long is a whole step of training on links, beside torch's DDP over Gloo and MXNet's KVStore?

    sudo python benchmarks/lab/step.py                      4+4 at two speeds, 2+2 at the faster: two minutes
    sudo python benchmarks/lab/step.py --runs 4@200 --mtu 9000
    sudo python benchmarks/lab/step.py --mxnet PYTHON       the interpreter of an environment with MXNet
    sudo python benchmarks/lab/step.py --tiny               does it run at all?

As many servers as workers, each on a machine of its own, train four dense layers of 1024 x 1024, 16.8 MB of
gradients, with real backward passes. Nothing is set: our DistributedOptimizer and MXNet's ``dist_sync`` have
their defaults, DDP its buckets of 25 MB. All run in one lab, one at a time, in changing order.

Two cores play all machines. At 1 Gbit/s 4+4 needs about as much of them as there is, so that run says what
the processors allow; 2+2 beside it is what they can drive, but two workers in a ring move as many bytes as
through servers, and there is nothing to gain but overlap.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import figures
from common import ETHERNET, arguments, environment, finish, parser, told
from formulas import layout_of, optimum_s
from kvstore import KVStore

from byteps.tools.arguments import list_of, positive
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.lab_cluster import LabCluster
from byteps.tools.bench.members import Message
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series, ratio_of
from byteps.tools.bench.stats import Goal, Verdict, judge
from byteps.tools.bench.team import STEP_TIMEOUT_S
from byteps.tools.lab import Wire
from byteps.tools.units import format_time

BENCHMARKS = Path(__file__).parents[1]
RUNS, TINY_RUNS = "4@200,4@1000,2@1000", "2@200"
NETWORK, OURS, THEIRS, KVSTORE = "linear-1024", "optimizer", "ddp-gloo", "kvstore"
METHODS = ("alone", THEIRS, OURS, "cross-barrier")
SPEEDUP_GOAL, SPEEDUP_WORKERS = 1.4, 4  # with fewer a ring moves hardly more than servers do
HEADER = ("links", "method", "step", "of the optimum", "CPU of all", "byteps is")


def run(text: str) -> tuple[int, float]:
    """Workers, as many servers, and the rate of links.

    >>> run("4@200")
    (4, 200.0)
    """
    workers, _, rate = text.partition("@")
    if not (workers.isdecimal() and int(workers) >= 2 and rate.isdecimal() and int(rate)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected WORKERS@MBIT such as 4@200, 2 workers or more")
    return int(workers), float(rate)


def settings() -> dict[str, str]:
    """train_step_worker.py is in the folder above, and its networks are among the examples."""
    made = environment()
    folders = (BENCHMARKS, BENCHMARKS.parent / "examples" / "torch", made["PYTHONPATH"])
    return {**made, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def measure(args: argparse.Namespace, workers: int, rate: float) -> list[Series]:
    """All methods on links of one rate."""
    wire = Wire(args.mtu, args.queue)
    layout = layout_of(workers, workers)
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LabCluster(layout, rate, ["byteps", "gloo"], settings(), "train_step_worker", wire)
        )
        build: Message = {"do": "build", "network": NETWORK, "peers": METHODS, "tiny": args.tiny}
        facts = cluster.members.ask(dict.fromkeys(cluster.worker_names, build), STEP_TIMEOUT_S)["worker 0"]
        store = None
        if args.mxnet:
            store = stack.enter_context(KVStore(cluster.lab, layout, args.mxnet, args.tiny))

        def sample(one: Series, inner: int) -> Sample:
            request: Message = {"do": "steps", "peer": one.peer, "inner": inner, "backward": False}
            team = store if store is not None and one.peer == KVSTORE else cluster
            return team.sample("byteps", request, {}, inner)

        notes = {
            "case": f"{workers}+{workers}",
            "rate_mbit": rate,
            "mtu": wire.mtu,
            "queue_ms": wire.queue_ms,
            "optimum_s": optimum_s(workers, workers, facts["nbytes"], rate * wire.efficiency),
        }
        series = [
            Series(
                method, workers, workers, facts["nbytes"], args.inner, tensors=facts["tensors"], notes=notes
            )
            for method in (*METHODS, *([KVSTORE] if store else []))
        ]
        interleave(title(series), [series], sample, args.repeats)
        if store is not None:
            store.check()
            store.leave()
        cluster.leave()
    return series


def title(series: Sequence[Series]) -> str:
    first = series[0]
    return f"{first.notes['case']}, {first.notes['rate_mbit']:g} Mbit/s"


def verdicts_of(series: Sequence[Series]) -> list[Verdict]:
    """One run; pure."""
    if series[0].workers < SPEEDUP_WORKERS:
        return []
    goal = Goal(title(series), "{:.2f} times as fast as DDP over Gloo", SPEEDUP_GOAL)
    return [judge(goal, ratio_of(series, THEIRS, OURS))]


def rows(series: Sequence[Series]) -> list[list[str]]:
    return [
        [
            "" if index else title(series),
            one.peer,
            format_time(one.summary().median),
            f"{one.summary().median / one.notes['optimum_s']:.3f}" if one.peer != "alone" else "",
            format_time(one.cpu_s()),
            told(ratio_of(series, one.peer, OURS)) if one.peer not in ("alone", OURS) else "",
        ]
        for index, one in enumerate(series)
    ]


def main() -> int:
    made = parser(__doc__, repeats=5)
    add = made.add_argument
    add("--runs", type=list_of(run), metavar="N@MBIT", help=f"workers and rate of links ({RUNS})")
    add("--mtu", type=positive, default=ETHERNET.mtu, help="of the links (%(default)s)")
    add("--queue", type=positive, default=ETHERNET.queue_ms, metavar="MS", help="(%(default)s)")
    add("--inner", type=positive, default=2, help="steps of a sample (%(default)s)")
    usual = BENCHMARKS.parent / ".venv-mxnet" / "bin" / "python"
    add("--mxnet", type=Path, default=usual, metavar="PYTHON", help="with MXNet (.venv-mxnet/bin/python)")
    args = arguments(made)
    if not args.mxnet.exists():
        say(f"without MXNet's KVStore: there is no {args.mxnet}; make test-mxnet makes it, or use --mxnet")
        args.mxnet = None
    args.runs = args.runs or list_of(run)(TINY_RUNS if args.tiny else RUNS)
    settings = [measure(args, workers, rate) for workers, rate in args.runs]
    table("a step of training on links", HEADER, [row for series in settings for row in rows(series)])
    verdicts = [verdict for series in settings for verdict in verdicts_of(series)]
    everything = [one for series in settings for one in series]
    return finish(args, "step", everything, verdicts, lambda path: figures.step(path, settings))


if __name__ == "__main__":
    sys.exit(main())
