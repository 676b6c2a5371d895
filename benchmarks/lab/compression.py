"""Does gradient compression shorten training on slow links, and what does it cost in accuracy?

    sudo python benchmarks/lab/compression.py                    three seeds: about eight minutes
    sudo python benchmarks/lab/compression.py --settings fp16,onebit --seeds 1
    sudo python benchmarks/lab/compression.py --tiny             does it run at all?

Four workers and four servers train a real convolutional network (compression_worker.py) on real images, the
digits of scikit-learn, on links of 100 Mbit/s with every setting and seed: in every seed all settings, in
changing order. Time is that of all steps. Then some steps on links of 10 Gbit/s, which are faster than two
cores: what compression costs where there is nothing to gain.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import figures
from common import ETHERNET, arguments, environment, finish, parser, told

from byteps.tools.arguments import list_of, one_of, positive
from byteps.tools.bench.lab_cluster import LabCluster
from byteps.tools.bench.members import Message
from byteps.tools.bench.screen import progress, table
from byteps.tools.bench.series import Series, ratio_of
from byteps.tools.bench.stats import Goal, Verdict, judge, orders
from byteps.tools.lab.layout import Layout
from byteps.tools.units import format_time

POINTS = 1.5
PLAIN = "uncompressed"
RUN_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Setting:
    """How to train; ``speedup`` is the goal on slow links, for settings that must keep their accuracy too."""

    params: Mapping[str, Any] | None
    lr: float = 0.1
    momentum: float = 0.9
    speedup: float | None = None


def _sparse(compressor: str, k: float, **more: Any) -> Setting:
    return Setting({"compressor": compressor, "k": k, "ef": "vanilla"}, **more)


SETTINGS: dict[str, Setting] = {
    PLAIN: Setting(None),
    "fp16": Setting({"fp16": True}),
    "dithering k=2": Setting({"compressor": "dithering", "k": 2}),
    "dist-EF-SGDM": Setting(
        {"compressor": "onebit", "scaling": True, "ef": "corrected", "momentum": "nesterov"}, speedup=2.6
    ),
    "topk k=0.001": _sparse("topk", 0.001),
    "topk k=0.01": _sparse("topk", 0.01, speedup=5.5),
    "randomk k=0.001": _sparse("randomk", 0.001),
    "randomk k=0.01": _sparse("randomk", 0.01),
    "randomk k=0.05": _sparse("randomk", 0.05, speedup=5.5),
}


class Trainers(LabCluster):
    """Workers that train when told."""

    def train(self, one: Series, epochs: int, seed: int) -> None:
        """One run of a setting: its time into the series, everything else into the notes."""
        setting = SETTINGS[one.peer]
        request: Message = {"do": "train", "seed": seed, "epochs": epochs, **asdict(setting)}
        answers = self.members.ask(dict.fromkeys(self.worker_names, request), RUN_TIMEOUT_S)
        workers = [answers[name] for name in self.worker_names]
        if len({each["accuracy"] for each in workers}) != 1:
            raise AssertionError(f"{one.peer}, seed {seed}: workers ended with different networks: {workers}")
        one.samples_s.append((max(w["end_ns"] for w in workers) - min(w["start_ns"] for w in workers)) / 1e9)
        one.samples_cpu_s.append(sum(w["cpu_ns"] for w in workers) / 1e9)
        first = workers[0]
        one.notes["accuracies"].append(first["accuracy"])
        one.notes["steps"] = first["steps"]
        one.notes["bytes_saved"] = first["pushed_bytes"] / first["pushed_wire_bytes"]


def measure(args: argparse.Namespace, rate: float, epochs: int) -> list[Series]:
    """Every setting and seed on links of one rate."""
    layout = Layout(args.workers, 0, args.workers)
    with Trainers(layout, rate, ["byteps"], environment(), "compression_worker", wire=ETHERNET) as trainers:
        warm = Series(PLAIN, args.workers, args.workers, 0, 1, notes={"accuracies": []})
        trainers.train(warm, 1, 0)  # connections, caches, threads of PyTorch; not counted
        series = [
            Series(name, args.workers, args.workers, args.nbytes, 1, notes={
                "rate_mbit": rate, "accuracies": [], "seeds": args.seeds, "epochs": epochs,
                **{key: value for key, value in asdict(SETTINGS[name]).items() if key != "speedup"},
            })
            for name in args.settings
        ]  # fmt: skip
        plan = orders(series, len(args.seeds))
        with progress(f"links of {rate:g} Mbit/s", len(series) * len(plan)) as step:
            for seed, order in zip(args.seeds, plan, strict=True):
                for one in order:
                    step(f"seed {seed}, {one.peer}")
                    trainers.train(one, epochs, seed)
        trainers.leave()
    return series


def lost_points(series: Sequence[Series], one: Series) -> list[float]:
    """Of accuracy, beside training without compression: seed by seed."""
    plain = next(each for each in series if each.peer == PLAIN)
    return [
        theirs - ours for theirs, ours in zip(plain.notes["accuracies"], one.notes["accuracies"], strict=True)
    ]


def verdicts_of(series: Sequence[Series]) -> list[Verdict]:
    """On slow links; pure."""
    found = []
    for one in series:
        target = SETTINGS[one.peer].speedup
        if target is not None:
            goal = Goal(one.peer, "{:.2f} times as fast as uncompressed", target)
            found.append(judge(goal, ratio_of(series, PLAIN, one.peer)))
            lost = lost_points(series, one)
            goal = Goal(one.peer, "{:.2f} points of accuracy lost", POINTS, at_most=True)
            found.append(Verdict(goal, sum(lost) / len(lost)))
    return found


def rows(series: Sequence[Series], accuracy: bool) -> list[list[str]]:
    found = []
    for one in series:
        ratio = ratio_of(series, PLAIN, one.peer) if one.peer != PLAIN else None
        accuracies = one.notes["accuracies"]
        mean = f"{sum(accuracies) / len(accuracies):.2f} ({min(accuracies):.2f} to {max(accuracies):.2f})"
        cells = [format_time(one.summary().median), told(ratio), f"{one.notes['bytes_saved']:.1f}"]
        found.append([one.peer, *cells, mean if accuracy else ""])
    return found


def main() -> int:
    made = parser(__doc__, repeats=3)
    add = made.add_argument
    add("--settings", type=list_of(one_of(list(SETTINGS))), default=",".join(SETTINGS), help="(%(default)s)")
    add("--seeds", type=list_of(int), help="(as many as repetitions: 0,1,2)")
    add("--workers", type=positive, help="and as many servers (4)")
    add("--rate", type=float, default=100.0, metavar="MBIT", help="of a slow link (%(default)s)")
    add("--fast-rate", type=float, default=10_000.0, metavar="MBIT", help="of a fast one (%(default)s)")
    add("--epochs", type=positive, help="on slow links (10)")
    add("--fast-epochs", type=positive, help="on fast links (2)")
    args = arguments(made)
    args.workers = args.workers or (2 if args.tiny else 4)
    args.epochs = args.epochs or (1 if args.tiny else 10)
    args.fast_epochs = args.fast_epochs or (1 if args.tiny else 2)
    args.seeds = args.seeds or list(range(args.repeats))
    args.nbytes = 4 * 548_746
    if PLAIN not in args.settings:
        args.settings.insert(0, PLAIN)
    slow = measure(args, args.rate, args.epochs)
    fast = measure(args, args.fast_rate, args.fast_epochs)
    header = ("setting", "time", "than uncompressed", "bytes saved", "accuracy, percent")
    table(f"training on links of {args.rate:g} Mbit/s", header, rows(slow, True))
    table(f"{args.fast_epochs} epochs on links of {args.fast_rate:g} Mbit/s", header, rows(fast, False))
    return finish(
        args,
        "compression",
        [*slow, *fast],
        verdicts_of(slow),
        lambda path: figures.compression(path, slow, fast),
    )


if __name__ == "__main__":
    sys.exit(main())
