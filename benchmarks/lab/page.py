"""Puts the tables of the last measurements into docs/performance.md, between its markers.

    python benchmarks/lab/page.py                       from bench-results/ into docs/performance.md
    python benchmarks/lab/page.py --results DIR OTHER_DIR --page FILE

A table stands between ``<!-- cases -->`` and ``<!-- end -->``; one whose result file is missing, or has
nothing for it, stays as it is. What the page says about the figures is written by hand: read it again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import figures
import was
from common import told

from byteps.tools.bench.series import Series
from byteps.tools.bench.stats import Ratio, quantile
from byteps.tools.units import format_time

__all__ = [
    "TABLES",
    "cases",
    "compression",
    "fill",
    "loads",
    "overlap",
    "scaling",
    "step",
    "was_and_is",
    "wires",
]

One = dict[str, Any]  # a series of a result file
# What was measured, of all that the notes of a series say.
SETTINGS = ("case", "rate_mbit", "mtu", "queue_ms", "one_name", "load", "network", "gbit")
Head = dict[str, Callable[[One], object]]  # the first columns: a name, and what a series has there


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


def cases(series: Iterable[One]) -> str:
    chosen = [one for one in series if one["notes"]["kind"] == "cases"]
    return sums(chosen, {"n": lambda one: one["workers"], "k": lambda one: one["notes"]["k"], "links": link})


def loads(series: Iterable[One]) -> str:
    chosen = [one for one in series if one["notes"]["kind"] == "loads"]
    return sums(chosen, {"n+k": case, "links": link, "gradients": lambda one: one["notes"]["load"]})


def wires(series: Iterable[One]) -> str:
    """The links that are not the usual ones, and the usual ones where they can be compared."""
    every = list(series)
    other = [one["notes"] for one in every if one["notes"]["kind"] == "wires"]
    alike = {(notes["case"], notes["rate_mbit"], notes["load"]) for notes in other}
    chosen = [
        one for one in every
        if (one["notes"]["case"], one["notes"]["rate_mbit"], one["notes"]["load"]) in alike
    ]  # fmt: skip
    head: Head = {
        "n+k": case,
        "MTU": lambda one: one["notes"]["mtu"],
        "queue": lambda one: (
            f"{one['notes']['queue_ms']:g} ms{', one name' * bool(one['notes']['one_name'])}"
        ),
        "gradients": lambda one: one["notes"]["load"],
    }
    return sums(chosen, head)


def sums(series: Iterable[One], head: Head) -> str:
    """A row for each load in each lab, ours beside Gloo's; empty without any."""
    rows = []
    for peers in grouped(series, "case", "rate_mbit", "mtu", "queue_ms", "one_name", "load").values():
        ours, gloo = peers["byteps"], peers["gloo"]
        notes, shares = ours["notes"], ours["notes"].get("over_shares")
        rows.append([
            *(str(cell(ours)) for cell in head.values()),
            format_time(middle(ours["samples_s"])),
            spread(of(ours, "optimum_s")),
            f"{max(max(pair) for pair in shares.values()):.3f}" if shares else "",
            f"{notes['resent_per_round']:g}" if "resent_per_round" in notes else "",
            " + ".join(f"{each:.1f}" for each in notes["cpu_s_per_gb"]),
            f"{middle(of(gloo, 'optimum_s')):.2f}",
            f"{gloo['notes']['cpu_s_per_gb'][0]:.1f}",
            faster(gloo, ours),
            f"{gloo['notes']['optimum_s'] / notes['optimum_s']:.2f}",
        ])  # fmt: skip
    header = ("time", "of the optimum", "fullest link", "sent again", "CPU s/GB")
    return markdown((*head, *header, "Gloo", "CPU s/GB", "beside Gloo", "theory"), rows) if rows else ""


def case(one: One) -> str:
    return str(one["notes"]["case"])


def link(one: One) -> str:
    return f"{one['notes']['rate_mbit']:g} Mbit/s"


def step(series: Iterable[One]) -> str:
    rows = []
    for (case, rate), peers in grouped(series, "case", "rate_mbit").items():
        ours, theirs, store = peers["optimizer"], peers["ddp-gloo"], peers.get("kvstore")
        rows.append([
            f"{case}, {rate:g} Mbit/s",
            *(format_time(middle(peers[name]["samples_s"])) for name in ("alone", "ddp-gloo")),
            format_time(middle(store["samples_s"])) if store else "",
            f"**{format_time(middle(ours['samples_s']))}**",
            format_time(middle(peers["cross-barrier"]["samples_s"])),
            f"{middle(of(ours, 'optimum_s')):.2f}",
            faster(theirs, ours),
            faster(store, ours) if store else "",
        ])  # fmt: skip
    header = ("n+k, links", "computing alone", "DDP over Gloo", "MXNet's KVStore", "byteps", "cross barrier")
    return markdown((*header, "of the optimum", "byteps than DDP", "than KVStore"), rows)


def was_and_is(theory: Sequence[One], steps: Sequence[One]) -> str:
    return markdown(("200 Mbit/s, nothing set", "was", "is"), was.rows(theory, steps))


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


# From which result files, and how.
TABLES: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "was": (("theory", "step"), was_and_is),
    "cases": (("theory",), cases),
    "loads": (("theory",), loads),
    "wires": (("theory",), wires),
    "step": (("step",), step),
    "overlap": (("overlap",), overlap),
    "compression": (("compression",), compression),
    "scaling": (("scaling",), scaling),
}


def fill(page: str, name: str, table: str) -> str:
    """
    >>> fill("a\\n<!-- cases -->\\n\\nold\\n\\n<!-- end -->\\nz", "cases", "new")
    'a\\n<!-- cases -->\\n\\nnew\\n\\n<!-- end -->\\nz'
    """
    place = re.compile(rf"(<!-- {name} -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
    filled, count = place.subn(lambda found: found[1] + table + found[2], page)
    if count != 1:
        raise SystemExit(f"error: the page has {count} places for the table {name!r}, not one")
    return filled


def parts_of(folders: Sequence[Path], file: str) -> list[One]:
    """The result files of one benchmark, from all folders that have one."""
    paths = [folder / f"lab-{file}.json" for folder in folders]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def joined(parts: Sequence[One]) -> list[One]:
    """All series of several result files; what was measured twice counts as it was the last time.

    >>> old, new = ({"peer": "gloo", "notes": {"load": "1M"}, "samples_s": [s]} for s in (1.0, 2.0))
    >>> [one["samples_s"] for one in joined([{"series": [old]}, {"series": [new]}])]
    [[2.0]]
    """
    found: dict[tuple[object, ...], One] = {}
    for part in parts:
        for one in part["series"]:
            where = tuple(one["notes"].get(note) for note in SETTINGS)
            found[one.get("peer"), one.get("workers"), where] = one
    return list(found.values())


def series_of(one: One) -> Series:
    """
    >>> series_of({"peer": "gloo", "workers": 2, "servers": 0, "nbytes": 8, "inner": 1, "more": 0}).peer
    'gloo'
    """
    return Series(**{field.name: one[field.name] for field in fields(Series) if field.name in one})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--results",
        type=Path,
        nargs="+",
        default=[Path("bench-results")],
        metavar="DIR",
        help="parts that were measured apart; of two that are alike the last counts (bench-results)",
    )
    add("--figures", type=Path, metavar="DIR", help="draw the plot of theory anew, from all of them")
    add("--page", type=Path, default=Path("docs/performance.md"), metavar="FILE", help="(%(default)s)")
    args = parser.parse_args()
    if not args.page.is_file():
        parser.error(f"{args.page} is no file; run this in the project's folder, or say --page FILE")
    page = args.page.read_text()
    for name, (files, table) in TABLES.items():
        parts = {file: parts_of(args.results, file) for file in files}
        if missing := [file for file, found in parts.items() if not found]:
            print(f"{name}: no lab-{', '.join(missing)}.json, left as it is")
            continue
        every = [each for found in parts.values() for each in found]
        if any(each["settings"].get("tiny") for each in every):
            print(f"{name}: --tiny is a check that it runs, not a measurement, left as it is")
            continue
        if not (text := table(*map(joined, parts.values()))):
            print(f"{name}: nothing for it in {', '.join(map(str, args.results))}, left as it is")
            continue
        page = fill(page, name, text)
        when = ", ".join(
            f"{each['written']} ({each['settings'].get('stolen', 0):.1%} stolen)" for each in every
        )
        print(f"{name}: measured {when}")
    args.page.write_text(page)
    if args.figures and (found := parts_of(args.results, "theory")):
        figures.theory(args.figures / "theory.png", [series_of(one) for one in joined(found)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
