"""What each setting of compression costs in accuracy and saves in bytes, on scikit-learn's digits.

    python benchmarks/compression_study.py                 about five minutes; bench-results/compression.json
    python benchmarks/compression_study.py --docs docs     the plots of docs/compression.md, too

One job of two workers and a server trains the network of ``byteps.testing.digits`` with every setting and
three seeds, one after the other. With the results of benchmarks/compress_links.py in the output folder
there is a plot of the speed over links, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from byteps.testing import cluster
from byteps.testing.digits import SETTINGS, Setting

SEEDS = (0, 1, 2)
STUDY: dict[str, Setting] = {
    **SETTINGS,
    "onebit, no ef": Setting({"compressor": "onebit", "scaling": True}),
    "onebit, no ef, lr / 4": Setting({"compressor": "onebit", "scaling": True}, lr=0.025),
    "onebit, no scaling": Setting({"compressor": "onebit"}, lr=0.001),
    "topk 0.001, ef": Setting({"compressor": "topk", "k": 0.001, "ef": "vanilla"}, lr=0.2),
    "topk 0.01, no ef": Setting({"compressor": "topk", "k": 0.01}, lr=0.2),
    "topk 0.01, ef, nesterov": Setting(
        {"compressor": "topk", "k": 0.01, "ef": "vanilla", "momentum": "nesterov"}
    ),
    "randomk 0.1, ef": Setting({"compressor": "randomk", "k": 0.1, "ef": "vanilla"}, lr=0.5, momentum=0.0),
    "randomk, 10 epochs": replace(SETTINGS["randomk"], epochs=10),
    "int4, no ef": Setting({"compressor": "int4"}),
    "int4, nearest, no ef": Setting({"compressor": "int4", "rounding": "nearest"}),
    "dithering 2, ef": Setting({"compressor": "dithering", "k": 2, "ef": "vanilla"}),
    "dithering 2, l2": Setting({"compressor": "dithering", "k": 2, "normalize": "l2"}, lr=0.02),
    "dithering 2, l2, ef": Setting(
        {"compressor": "dithering", "k": 2, "normalize": "l2", "ef": "vanilla"}, lr=0.02
    ),
    "dithering 16, l2": Setting({"compressor": "dithering", "k": 16, "normalize": "l2"}),
}


def worker() -> dict[str, list[dict[str, float]]]:
    """Train with every setting and seed."""
    import torch

    import byteps.torch as bps
    from byteps.testing.digits import train

    torch.set_num_threads(1)
    bps.init()
    return {name: [train(setting, seed) for seed in SEEDS] for name, setting in STUDY.items()}


def _row(name: str, runs: list[dict[str, float]]) -> dict[str, Any]:
    setting = STUDY[name]
    accuracies = [run["accuracy"] for run in runs]
    return {
        "params": setting.params and dict(setting.params),
        "lr": setting.lr,
        "momentum": setting.momentum,
        "epochs": setting.epochs,
        "accuracies": [round(each, 2) for each in accuracies],
        "accuracy": round(mean(accuracies), 2),
        "bytes_saved_factor": round(runs[0]["pushed_bytes"] / runs[0]["pushed_wire_bytes"], 1),
    }


def _plot(rows: dict[str, dict[str, Any]], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 5.5), sharey=True)
    names = list(rows)
    lowest = 84.0  # what is below is shown at the edge, with its number
    for place, (name, row) in enumerate(rows.items()):
        colour = "#1f6fb4" if name in SETTINGS else "#999999"
        shown = [max(lowest, each) for each in row["accuracies"]]
        left.plot(shown, [place] * len(shown), "o", color=colour, markersize=3, alpha=0.6)
        left.plot(max(lowest, row["accuracy"]), place, "|", color=colour, markersize=14)
        if row["accuracy"] < lowest:
            left.annotate(f"  {row['accuracy']:.0f}", (lowest, place), va="center", fontsize=7)
        right.barh(place, row["bytes_saved_factor"], color=colour)
        right.annotate(
            f" {row['bytes_saved_factor']:g}", (row["bytes_saved_factor"], place), va="center", fontsize=7
        )
    left.set_yticks(range(len(names)), names, fontsize=8)
    left.invert_yaxis()
    left.set_xlabel("accuracy on unseen digits, percent: three seeds, and their mean", fontsize=8)
    right.set_xscale("log")
    right.set_xlabel("bytes of gradients / bytes on the wire", fontsize=8)
    right.margins(x=0.15)
    left.grid(alpha=0.3)
    figure.suptitle("2 workers, 1 server, digits; blue: recommended settings", fontsize=9)
    figure.tight_layout()
    figure.savefig(folder / "images" / "compression-accuracy.png", dpi=120)


def _plot_links(output: Path, folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = [path for path in sorted(output.glob("compress_links_*.json"))]
    if not found:
        print("no plot of links: run benchmarks/compress_links.py first")
        return
    figure, panes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.4), squeeze=False)
    for axes, path in zip(panes[0], found, strict=True):
        result = json.loads(path.read_text())
        medians = result["median_s"]
        times = [medians["uncompressed"] / median for median in medians.values()]
        axes.barh(list(medians), times, color="#1f6fb4")
        axes.invert_yaxis()
        axes.set_title(f"links of {result['rate']}" if result["rate"] else "TCP on loopback", fontsize=9)
        axes.set_xlabel("times as fast as uncompressed", fontsize=8)
        axes.tick_params(labelsize=7)
        for index, value in enumerate(times):
            axes.annotate(f" {value:.1f}", (value, index), va="center", fontsize=7)
        axes.margins(x=0.15)
    figure.suptitle(f"push_pull of {result['mbytes']} MB, 2 workers, 1 server, two cores", fontsize=9)
    figure.tight_layout()
    figure.savefig(folder / "images" / "compression-speed.png", dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("bench-results"), metavar="DIR")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="draw the plots into DIR/images")
    parser.add_argument("--plots-only", action="store_true", help="from the results of a run before")
    parser.add_argument("--deadline", type=float, default=1200.0, metavar="S")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "compression.json"
    if not args.plots_only:
        env = {"BYTEPS_MIN_COMPRESS_BYTES": "0"}
        with cluster(worker, workers=2, servers=1, env=env, deadline_s=args.deadline) as job:
            runs = job.wait()[0]
        path.write_text(json.dumps({name: _row(name, each) for name, each in runs.items()}, indent=1))
    rows = json.loads(path.read_text())
    for name, row in rows.items():
        seeds = " ".join(f"{each:6.2f}" for each in row["accuracies"])
        print(f"{name:26} {row['accuracy']:6.2f}   ({seeds})   bytes / {row['bytes_saved_factor']}")
    if args.docs is not None:
        _plot(rows, args.docs)
        _plot_links(args.output, args.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
