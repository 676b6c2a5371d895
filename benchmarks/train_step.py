"""What does communication cost a step of training, beside PyTorch's DistributedDataParallel over Gloo?

    python benchmarks/train_step.py                                    all networks, about ten minutes
    python benchmarks/train_step.py --networks linear --repeats 5
    python benchmarks/train_step.py --tiny --repeats 2                 does it run at all?

Two ranks on this machine train the same network in every method, interleaved in one run, and once without
any communication. The cost of communication is the time of a step less the time of a step without it.
"hook" is torch's DDP with our communication hook, "ddp-alone" with one that does nothing: the rest of what
"hook" costs is ours. The last part measures what our optimizer costs a backward pass for each parameter, its
hook and the wait at the end: the CPU time that the thread of the backward pass spends on many tiny layers,
with and without it, and with it over a core that does nothing.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from byteps.tools.arguments import list_of, one_of, positive
from byteps.tools.bench import report
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.local_ranks import environment
from byteps.tools.bench.machine import busy
from byteps.tools.bench.plot import draw_bars
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series, time_cells
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge
from byteps.tools.bench.team import STARTUP_TIMEOUT_S, STEP_TIMEOUT_S, Team

ALONE, THEIRS, PYTHON = "alone", "ddp-gloo", "python"
DDP_ALONE = "ddp-alone"  # torch's DDP with a communication hook that does nothing
METHODS = (ALONE, THEIRS, "optimizer", "ddp", "hook", "cross-barrier", DDP_ALONE)
NETWORKS = {"linear": 3, "resnet50": 3, "transformer": 10}  # steps that make one sample
HOOK_NETWORK, HOOK_STEPS = "small", 30
RANKS = 2
COST_GOALS = {"linear": 0.4}
STEP_GOAL = 1.02
HOOK_GOAL_US = 15.0
HERE = Path(__file__).parent


class Trainers(Team):
    """The ranks, each with one network in every method."""

    def _start(self) -> None:
        folders = [str(HERE), str(HERE.parent / "examples" / "torch"), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, folders))
        job_id = f"bench-{secrets.token_hex(4)}"
        with socket.socket() as listener:  # bound, so that nobody takes the port; rank 0 starts to listen
            listener.bind(("127.0.0.1", 0))
            port, fd = listener.getsockname()[1], listener.fileno()
            for rank, name in enumerate(self.worker_names):
                variables = environment(rank, self.workers, port, job_id, fd) | {"PYTHONPATH": path}
                self.members.start(name, "train_step_worker", variables, [fd] if rank == 0 else [])
        requests = {name: self.setup_request(rank) for rank, name in enumerate(self.worker_names)}
        answers = self.members.ask(requests, STARTUP_TIMEOUT_S)
        self.peers = answers[self.worker_names[0]]["peers"]

    def build(self, network: str, tiny: bool) -> list[Series]:
        """Prepare a network in every method; a series for each."""
        request = {"do": "build", "network": network, "peers": self.peers, "tiny": tiny}
        answers = self.members.ask(dict.fromkeys(self.worker_names, request), STEP_TIMEOUT_S)
        facts = answers[self.worker_names[0]]
        inner = NETWORKS.get(network, HOOK_STEPS)
        return [
            Series(
                peer,
                self.workers,
                0,
                facts["nbytes"],
                inner,
                tensors=facts["tensors"],
                notes={"network": network},
            )
            for peer in self.peers
        ]

    def measure(self, one: Series, inner: int) -> Sample:
        backward = one.notes["network"] == HOOK_NETWORK
        return self.sample(
            one.peer, {"do": "steps", "peer": one.peer, "inner": inner, "backward": backward}, {}, inner
        )


def judged(network: str, series: Sequence[Series]) -> list[Verdict]:
    """Cost of communication and whole step of each of our methods, as multiples of theirs; pure.

    Repetition by repetition: what disturbed one repetition disturbed all methods in it.
    """
    times = {one.peer: one.samples_s for one in series}
    if ALONE not in times or THEIRS not in times:
        return []
    verdicts = []
    for peer in times:
        if peer in (ALONE, THEIRS, DDP_ALONE):
            continue
        rows = list(zip(times[ALONE], times[THEIRS], times[peer], strict=True))
        costs = [(ours - alone) / (theirs - alone) for alone, theirs, ours in rows if theirs > alone]
        target = COST_GOALS.get(network, 1.0)
        text = "cost of communication {:.2f} of that of DDP over Gloo"
        goal = Goal(f"{network}, {peer}", text, target, at_most=True)
        verdicts.append(judge(goal, Ratio.of(costs) if costs else None))
        steps = Ratio.of([ours / theirs for _, theirs, ours in rows])
        text = "step {:.3f} of that of DDP over Gloo"
        verdicts.append(judge(Goal(f"{network}, {peer}", text, STEP_GOAL, at_most=True), steps))
    return verdicts


def hook_cost(series: Sequence[Series]) -> list[Verdict]:
    """Microseconds of CPU that the hook adds to a backward pass for each parameter: in Python, and in all."""
    times = {one.peer: one.samples_s for one in series}

    def added(peer: str) -> Ratio:
        pairs = zip(times[peer], times[ALONE], strict=True)
        return Ratio.of([(ours - alone) / series[0].tensors * 1e6 for ours, alone in pairs])

    whole = added("optimizer").value
    text = f"{{:.1f}} us of Python for each parameter, {whole:.1f} us with the core's work"
    return [judge(Goal("hook", text, HOOK_GOAL_US, at_most=True), added(PYTHON))]


def measure(args: argparse.Namespace, network: str, methods: Sequence[str]) -> list[Series]:
    """All methods on one network, in processes of their own: memory is given back after each network."""
    with Trainers(RANKS, methods) as ranks:
        series = ranks.build(network, args.tiny)
        interleave(network, [series], ranks.measure, args.repeats)
        ranks.leave()
    first = series[0]
    title = f"{network}: {first.tensors} parameters, {first.nbytes / 1e6:.1f} MB, {RANKS} ranks"
    table(title, ("method", "time", "spread", "CPU of all"), [_cells(one) for one in series])
    return series


def _cells(one: Series) -> list[str]:
    time, spread, _, cpu = time_cells(one)
    return [one.peer, time, spread, cpu]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--networks", type=list_of(one_of(list(NETWORKS))), default=",".join(NETWORKS), help="(%(default)s)")
    add("--methods", type=list_of(one_of(METHODS)), default=",".join(METHODS), help="(%(default)s)")
    add("--repeats", type=positive, default=15, metavar="N", help="repetitions (%(default)s)")
    add("--tiny", action="store_true", help="small networks: a check that it runs, not a measurement")
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")
    args = parser.parse_args()
    if remark := busy():
        say(remark)
    panels = {network: measure(args, network, args.methods) for network in args.networks}
    verdicts = [verdict for network, series in panels.items() for verdict in judged(network, series)]
    small = measure(args, HOOK_NETWORK, (ALONE, "optimizer", PYTHON))
    verdicts += hook_cost(small)
    for verdict in verdicts:
        say(verdict.line())
    path = args.output / "train-step.json"
    everything = [one for series in (*panels.values(), small) for one in series]
    settings = {**vars(args), "output": str(args.output)}
    report.write(path, "train-step", settings, everything, verdicts)
    picture = draw_bars(path.with_suffix(".png"), panels)
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
    return 1 if args.check and not all(verdict.reached for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
