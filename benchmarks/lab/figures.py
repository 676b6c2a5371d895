"""The figures of the benchmarks on links, each drawn from the series of one benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byteps.tools.bench.plot import pyplot_or_none, save
from byteps.tools.bench.series import Series, ratio_of

__all__ = ["compression", "overlap", "scaling", "theory"]

OURS, THEIRS, GREY = "#1f6fb4", "#d9822b", "#555555"
METHODS = {
    "alone": ("computing alone", "#bbbbbb"),
    "ddp-gloo": ("DDP over Gloo", THEIRS),
    "fifo": ("without priorities", "#9cc3e4"),
    "priority": ("with priorities", OURS),
    "cross-barrier": ("cross barrier", "#c0475a"),
}


def _bar(
    axis: Any, at: float, values: Sequence[float], color: str, width: float = 0.8, label: str = ""
) -> None:
    """Low quartile, median, high quartile."""
    low, middle, high = values
    axis.bar(
        at, middle, width, yerr=[[middle - low], [high - middle]], capsize=2, color=color, label=label or None
    )


def _quartiles(one: Series, by: float = 1.0) -> tuple[float, float, float]:
    summary = one.summary()
    return summary.q1 / by, summary.median / by, summary.q3 / by


def theory(path: Path, series: Sequence[Series]) -> Path | None:
    """Left: time over the optimum. Right: how many times as fast as Gloo, with theory as a mark."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    ours = [one for one in series if one.peer == "byteps"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), width_ratios=[3, 2])
    for at, one in enumerate(ours):
        _bar(left, at, _quartiles(one, one.notes["optimum_s"]), OURS)
    left.axhline(1.0, color=GREY, linewidth=1)
    left.axhline(1.1, color=GREY, linewidth=1, linestyle=":")
    left.set_xticks(range(len(ours)), [_wrapped(one) for one in ours], fontsize=8)
    left.set(title="time of a sum over the optimum", ylim=(0.8, None))
    compared = [one for one in series if one.peer == "gloo"]
    for at, theirs in enumerate(compared):
        mine = next(one for one in ours if one.notes["case"] == theirs.notes["case"])
        ratio = ratio_of([mine, theirs], "gloo")
        if ratio is not None:
            _bar(right, at, (ratio.q1, ratio.value, ratio.q3), OURS, 0.6)
        expected = theirs.notes["optimum_s"] / mine.notes["optimum_s"]
        right.plot([at - 0.4, at + 0.4], [expected] * 2, color="black", label=None if at else "theory")
    right.axhline(1.0, color=GREY, linewidth=1)
    right.set_xticks(range(len(compared)), [_wrapped(one) for one in compared], fontsize=8)
    right.set(title="times as fast as Gloo's all_reduce")
    if compared:
        right.legend(fontsize=8)
    return save(pyplot, figure, path)


def _wrapped(one: Series) -> str:
    return str(one.notes["case"]).replace(", ", "\n")


def scaling(path: Path, series: Sequence[Series]) -> Path | None:
    """Time of a round over the number of workers, beside the optimum."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    figure, axis = pyplot.subplots(figsize=(6, 3.4))
    counts = [one.workers for one in series]
    low, middle, high = zip(*map(_quartiles, series), strict=True)
    error = [
        [m - one for m, one in zip(middle, low, strict=True)],
        [one - m for m, one in zip(middle, high, strict=True)],
    ]
    axis.errorbar(counts, middle, yerr=error, color=OURS, marker="o", capsize=3, label="byteps")
    axis.plot(counts, [one.notes["optimum_s"] for one in series], color=GREY, linestyle=":", label="optimum")
    axis.set(xlabel="workers, and as many servers", ylabel="seconds for a sum", ylim=(0, None))
    axis.set_xticks(counts)
    axis.grid(alpha=0.3)
    axis.legend()
    return save(pyplot, figure, path)


def overlap(path: Path, settings: Sequence[Sequence[Series]]) -> Path | None:
    """Time of a step as a multiple of the bound: one group of bars for each network and link."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    links = sorted({series[0].notes["gbit"] for series in settings})
    figure, axes = pyplot.subplots(len(links), 1, figsize=(9, 3.0 * len(links)), squeeze=False)
    for (axis,), gbit in zip(axes, links, strict=True):
        groups = [series for series in settings if series[0].notes["gbit"] == gbit]
        for place, series in enumerate(groups):
            for index, one in enumerate(series):
                label, color = METHODS[one.peer]
                values = _quartiles(one, one.notes["bound_s"])
                _bar(axis, place + 0.16 * (index - 2), values, color, 0.15, label if place == 0 else "")
        axis.axhline(1.0, color="black", linewidth=1)
        axis.axhline(1.1, color=GREY, linewidth=1, linestyle=":")
        axis.set_xticks(range(len(groups)), [series[0].notes["network"] for series in groups])
        axis.set(title=f"links of {gbit} Gbit/s, scaled", ylabel="step over bound")
        axis.legend(fontsize=7, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return save(pyplot, figure, path)


def compression(path: Path, slow: Sequence[Series], fast: Sequence[Series]) -> Path | None:
    """Left: time and accuracy on slow links. Right: time on fast ones."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(11, 3.6), sharey=True)
    for axis, series in ((left, slow), (right, fast)):
        times = [one.summary().median for one in series]
        axis.barh([one.peer for one in series], times, color=OURS)
        for at, value in enumerate(times):
            axis.annotate(f" {value:.3g} s", (value, at), va="center", fontsize=7)
        axis.set(title=f"time, links of {series[0].notes['rate_mbit']:g} Mbit/s", xlabel="seconds")
        axis.margins(x=0.2)
    for at, one in enumerate(slow):
        accuracies = one.notes["accuracies"]
        middle.plot([min(accuracies), max(accuracies)], [at, at], color=OURS, linewidth=1)
        middle.plot(sum(accuracies) / len(accuracies), at, "o", color=OURS)
    middle.set(title="accuracy", xlabel="percent of unseen digits")
    middle.grid(alpha=0.3)
    left.invert_yaxis()
    return save(pyplot, figure, path)
