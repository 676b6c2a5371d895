"""What does the exchange of a step's gradients cost in each framework, beside the same in PyTorch?

    python benchmarks/framework_step.py                              all frameworks, about two minutes
    python benchmarks/framework_step.py --frameworks torch,tensorflow --repeats 30
    python benchmarks/framework_step.py --tensors 3 --repeats 2      does it run at all?

Two ranks on this machine exchange 100 gradients of 1 MB, which lie in memory of the framework: TensorFlow in
a graph, JAX inside jit, MXNet with the exchange of its trainer, PyTorch with push_pull_async for each and
synchronize for all. Each framework runs in its own environment (make test-tensorflow and so on make them);
all are started once, and their samples are taken in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from byteps.tools.arguments import list_of, one_of, positive
from byteps.tools.bench import report
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.local_ranks import environment
from byteps.tools.bench.machine import busy
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series, time_cells
from byteps.tools.bench.stats import Goal, Ratio, judge
from byteps.tools.bench.team import STARTUP_TIMEOUT_S, Team

HERE = Path(__file__).parent
RANKS = 2
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "jax")
BESIDE = "torch"
GOALS = {"tensorflow": 1.5}  # the others are shown, and not judged


class Ranks(Team):
    """The ranks of one framework."""

    def __init__(self, framework: str, python: str, tensors: int, nbytes: int, compute: bool) -> None:
        super().__init__(RANKS, [framework])
        self.framework, self.python = framework, python
        self.tensors, self.nbytes, self.compute = tensors, nbytes, compute

    def _start(self) -> None:
        job_id = f"bench-{secrets.token_hex(4)}"
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
        more = {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
        with socket.socket() as listener:  # bound, so that nobody takes the port; rank 0 starts to listen
            listener.bind(("127.0.0.1", 0))
            port, fd = listener.getsockname()[1], listener.fileno()
            for rank, name in enumerate(self.worker_names):
                variables = environment(rank, self.workers, port, job_id, fd) | more
                fds = [fd] if rank == 0 else []
                self.members.start(name, "framework_step_worker", variables, fds, python=self.python)
        request = {
            "do": "setup",
            "framework": self.framework,
            "tensors": self.tensors,
            "nbytes": self.nbytes,
            "compute": self.compute,
        }
        self.members.ask(dict.fromkeys(self.worker_names, request), STARTUP_TIMEOUT_S)

    def measure(self, inner: int) -> Sample:
        return self.sample(self.framework, {"do": "steps", "inner": inner}, {}, inner)


def pythons(given: list[str]) -> dict[str, str]:
    """The interpreter of each framework: this one for PyTorch, and those of the environments make builds."""
    found = {name: str(HERE.parent / f".venv-{name}" / "bin" / "python") for name in FRAMEWORKS}
    found[BESIDE] = sys.executable
    return found | dict(each.split("=", 1) for each in given)


def ratio(ours: Series, theirs: Series) -> Ratio:
    """Repetition by repetition: what disturbed one repetition disturbed all frameworks in it."""
    return Ratio.of([mine / other for mine, other in zip(ours.samples_s, theirs.samples_s, strict=True)])


def run(args: argparse.Namespace, interpreters: Mapping[str, str]) -> list[Series]:
    with contextlib.ExitStack() as stack:
        teams = {
            name: stack.enter_context(
                Ranks(name, interpreters[name], args.tensors, args.nbytes, args.compute)
            )
            for name in args.frameworks
        }
        series = [
            Series(name, RANKS, 0, args.tensors * args.nbytes, args.inner, tensors=args.tensors)
            for name in teams
        ]
        interleave("steps", [series], lambda one, inner: teams[one.peer].measure(inner), args.repeats)
        for team in teams.values():
            team.leave()
    return series


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--frameworks", type=list_of(one_of(FRAMEWORKS)), default=",".join(FRAMEWORKS), help="(%(default)s)")
    add("--python", action="append", default=[], metavar="NAME=PATH", help="the interpreter of a framework")
    add("--tensors", type=positive, default=100, metavar="N", help="gradients in a step (%(default)s)")
    add("--nbytes", type=positive, default=1_000_000, metavar="N", help="bytes of each (%(default)s)")
    add("--compute", action="store_true", help="the step makes the gradients too: it doubles arrays")
    add("--inner", type=positive, default=3, metavar="N", help="steps that make one sample (%(default)s)")
    add("--repeats", type=positive, default=15, metavar="N", help="repetitions (%(default)s)")
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")
    args = parser.parse_args()
    if remark := busy():
        say(remark)
    series = run(args, pythons(args.python))
    by_name = {one.peer: one for one in series}
    rows = []
    for one in series:
        time, spread, _, cpu = time_cells(one)
        beside = f"{ratio(one, by_name[BESIDE]).value:.2f}" if BESIDE in by_name else ""
        rows.append([one.peer, time, spread, cpu, beside])
    title = f"{args.tensors} gradients of {args.nbytes / 1e6:g} MB, {RANKS} ranks"
    table(title, ("framework", "step", "spread", "CPU of all", f"times {BESIDE}"), rows)
    verdicts = [
        judge(
            Goal(name, "step {:.2f} of that of PyTorch", target, at_most=True),
            ratio(by_name[name], by_name[BESIDE]),
        )
        for name, target in GOALS.items()
        if name in by_name and BESIDE in by_name
    ]
    for verdict in verdicts:
        say(verdict.line())
    path = args.output / "framework-step.json"
    settings = {**vars(args), "output": str(args.output)}
    report.write(path, "framework-step", settings, series, verdicts)
    say(f"all samples: {path}")
    return 1 if args.check and not all(verdict.reached for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
