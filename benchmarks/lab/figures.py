"""The figures of the benchmarks on links, each drawn from the series of one benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byteps.tools.bench.plot import pyplot_or_none, save
from byteps.tools.bench.series import Series

__all__ = ["compression", "overlap", "scaling", "step", "theory"]

OURS, THEIRS, GREY = "#1f6fb4", "#d9822b", "#555555"
METHODS = {
    "alone": ("computing alone", "#bbbbbb"),
    "ddp-gloo": ("DDP over Gloo", THEIRS),
    "fifo": ("without priorities", "#9cc3e4"),
    "priority": ("with priorities", OURS),
    "cross-barrier": ("cross barrier", "#c0475a"),
}
STEP_METHODS = {
    **METHODS,
    "optimizer": ("byteps", OURS),
    "kvstore": ("MXNet's KVStore", "#7a6bb0"),
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
    """Times of a sum over the optimum, ours beside Gloo's, whose own optimum is a mark; one panel a kind."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    pairs = list(zip(series[::2], series[1::2], strict=True))  # byteps, gloo of each load in each lab
    kinds = dict.fromkeys(ours.notes["kind"] for ours, _ in pairs)
    figure, axes = pyplot.subplots(len(kinds), 1, figsize=(10, 2.8 * len(kinds)), squeeze=False)
    for (axis,), kind in zip(axes, kinds, strict=True):
        chosen = [pair for pair in pairs if pair[0].notes["kind"] == kind]
        for at, (ours, gloo) in enumerate(chosen):
            optimum = ours.notes["optimum_s"]
            _bar(axis, at - 0.2, _quartiles(ours, optimum), OURS, 0.38, "" if at else "byteps")
            _bar(axis, at + 0.2, _quartiles(gloo, optimum), THEIRS, 0.38, "" if at else "Gloo")
            ring = gloo.notes["optimum_s"] / optimum
            axis.plot([at, at + 0.4], [ring] * 2, color="black", label=None if at else "optimum of a ring")
        axis.axhline(1.0, color=GREY, linewidth=1)
        axis.set_xticks(range(len(chosen)), [_place(ours, kind) for ours, _ in chosen], fontsize=7)
        axis.set(ylabel="time over optimum", ylim=(0.8, None))
    axes[0][0].legend(fontsize=7, ncols=3, loc="upper left")
    return save(pyplot, figure, path)


def _place(one: Series, kind: str) -> str:
    """Where a bar belongs, in short lines."""
    notes = one.notes
    links = f"{notes['case']}\n{notes['rate_mbit']:g} Mbit/s"
    if kind == "wires":
        links = f"{notes['case']}\nMTU {notes['mtu']}\n{notes['queue_ms']:g} ms"
        return links + ("\none name" if notes["one_name"] else "")
    return links if kind == "cases" else f"{links}\n{notes['load']}"


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


def step(path: Path, settings: Sequence[Sequence[Series]]) -> Path | None:
    """Time of a step: one panel for each number of workers and rate."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    figure, axes = pyplot.subplots(1, len(settings), figsize=(3.6 * len(settings), 3.4), squeeze=False)
    for axis, series in zip(axes[0], settings, strict=True):
        for at, one in enumerate(series):
            label, color = STEP_METHODS[one.peer]
            _bar(axis, at, _quartiles(one), color, label=label)
        first = series[0]
        axis.axhline(first.notes["optimum_s"], color=GREY, linewidth=1, linestyle=":")
        axis.set_xticks([])
        axis.set(title=f"{first.notes['case']}, {first.notes['rate_mbit']:g} Mbit/s", ylabel="s")
    axes[0][0].legend(fontsize=7)
    return save(pyplot, figure, path)
