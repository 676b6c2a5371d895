"""Puts the tables of the last measurements into docs/performance.md, between its markers.

    python benchmarks/lab/page.py                       from bench-results/ into docs/performance.md
    python benchmarks/lab/page.py --results DIR --page FILE

A table stands between ``<!-- theory -->`` and ``<!-- end -->``; one whose result file is missing stays as it
is. What the page says about the figures is written by hand: read it again afterwards.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from common import told

from byteps.tools.bench.stats import Ratio, quantile
from byteps.tools.bench.units import format_time

__all__ = ["TABLES", "compression", "fill", "overlap", "scaling", "theory"]

One = dict[str, Any]  # a series of a result file


def middle(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> str:
    """
    >>> spread([1.0, 1.1, 1.2])
    '1.10 [1.05 to 1.15]'
    """
    return str(Ratio.of(values))


def compared(over: One, under: One, text: str = "{}") -> str:
    """How many times as long one took, if it can be told."""
    return told(Ratio.of(ratios(over, under)), text)


def faster(slow: One, fast: One) -> str:
    return compared(slow, fast, "{} times as fast")


def ratios(over: One, under: One) -> list[float]:
    """Repetition by repetition, for they were measured one after the other."""
    return [a / b for a, b in zip(over["samples_s"], under["samples_s"], strict=True)]


def of(one: One, note: str) -> list[float]:
    return [sample / one["notes"][note] for sample in one["samples_s"]]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """
    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |" for cells in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def grouped(series: Iterable[One], *notes: str) -> dict[tuple[Any, ...], dict[str, One]]:
    """Series by peer, for each value of these notes, in the order of the file."""
    found: dict[tuple[Any, ...], dict[str, One]] = {}
    for one in series:
        found.setdefault(tuple(one["notes"][note] for note in notes), {})[one["peer"]] = one
    return found


def theory(series: Iterable[One]) -> str:
    rows = []
    for peers in grouped(series, "case").values():
        ours, theirs = peers["byteps"], peers.get("gloo")
        notes = ours["notes"]
        rows.append([
            str(ours["workers"]),
            str(notes["k"]),
            f"{notes['rate_mbit']:g} Mbit/s",
            format_time(middle(ours["samples_s"])),
            spread(of(ours, "optimum_s")),
            f"{max(max(pair) for pair in notes['over_shares'].values()):.3f}",
            faster(theirs, ours) if theirs else "",
            f"{theirs['notes']['optimum_s'] / notes['optimum_s']:.2f}" if theirs else "",
        ])  # fmt: skip
    header = ("n", "k", "links", "time", "of the optimum", "fullest link", "beside Gloo", "theory")
    return markdown(header, rows)


def overlap(series: Iterable[One]) -> str:
    methods = ("ddp-gloo", "fifo", "priority", "cross-barrier")
    rows = []
    for (network, gbit), peers in grouped(series, "network", "gbit").items():
        steps = [f"{middle(of(peers[method], 'bound_s')):.2f}" for method in methods]
        steps[-1] = f"**{steps[-1]}**"
        rows.append([
            f"{network}, {gbit} Gbit/s", *steps, faster(peers["ddp-gloo"], peers["cross-barrier"])
        ])  # fmt: skip
    header = ("network, link", "DDP over Gloo", "without priorities", "with priorities", "cross barrier")
    return markdown((*header, "cross barrier than DDP"), rows)


def compression(series: Iterable[One]) -> str:
    by_rate = grouped(series, "rate_mbit")
    slow, fast = by_rate[min(by_rate)], by_rate[max(by_rate)]
    plain, rows = next(iter(slow)), []
    for name, one in slow.items():
        accuracies = one["notes"]["accuracies"]
        gain = "" if name == plain else faster(slow[plain], one)
        rows.append([
            name,
            f"{middle(one['samples_s']):.1f} s",
            gain,
            f"{sum(accuracies) / len(accuracies):.2f} ({min(accuracies):.2f} to {max(accuracies):.2f})",
            f"/ {one['notes']['bytes_saved']:.0f}",
            "" if name == plain else compared(fast[plain], fast[name]),
        ])  # fmt: skip
    header = ("setting", "time", "beside uncompressed", "accuracy, mean of the seeds", "bytes")
    return markdown((*header, "on links of 10 Gbit/s"), rows)


def scaling(series: Sequence[One]) -> str:
    first = series[0]
    rows = [
        [
            str(one["workers"]),
            format_time(middle(one["samples_s"])),
            "" if one is first else compared(one, first),
            f"{middle(of(one, 'optimum_s')):.2f}",
        ]
        for one in series
    ]
    return markdown(("workers = servers", "time", "of the time of one", "of the optimum"), rows)


TABLES: dict[str, Callable[[Sequence[One]], str]] = {
    "theory": theory,
    "overlap": overlap,
    "compression": compression,
    "scaling": scaling,
}


def fill(page: str, name: str, table: str) -> str:
    """
    >>> fill("a\\n<!-- theory -->\\n\\nold\\n\\n<!-- end -->\\nz", "theory", "new")
    'a\\n<!-- theory -->\\n\\nnew\\n\\n<!-- end -->\\nz'
    """
    place = re.compile(rf"(<!-- {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
    filled, count = place.subn(lambda found: found[1] + table + found[2], page)
    if count != 1:
        raise SystemExit(f"error: the page has {count} places for the table {name!r}, not one")
    return filled


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--results", type=Path, default=Path("bench-results"), metavar="DIR", help="(%(default)s)")
    add("--page", type=Path, default=Path("docs/performance.md"), metavar="FILE", help="(%(default)s)")
    args = parser.parse_args()
    if not args.page.is_file():
        parser.error(f"{args.page} is no file; run this in the project's folder, or say --page FILE")
    page = args.page.read_text()
    for name, table in TABLES.items():
        path = args.results / f"lab-{name}.json"
        if not path.exists():
            print(f"{name}: no {path}, left as it is")
            continue
        found = json.loads(path.read_text())
        page = fill(page, name, table(found["series"]))
        print(f"{name}: measured {found['written']}, {found['settings'].get('stolen', 0):.1%} stolen")
    args.page.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
