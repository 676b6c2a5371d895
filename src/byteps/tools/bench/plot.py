"""The plots of the benchmarks, as PNG; without matplotlib there is none and the reason is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from byteps.tools.bench.screen import say
from byteps.tools.bench.series import Series
from byteps.tools.units import format_bytes

__all__ = ["draw_bars", "draw_memory", "draw_sizes", "pyplot_or_none", "save"]

# The same peer has the same look in every plot.
STYLES = {
    "byteps": ("#1f6fb4", "o"),
    "arena": ("#2a9d57", "D"),
    "gloo": ("#d9822b", "s"),
    "bound": ("#555555", "^"),
    "alone": ("#555555", "^"),
    "ddp-alone": ("#999999", "<"),
    "ddp-gloo": ("#d9822b", "s"),
    "optimizer": ("#1f6fb4", "o"),
    "ddp": ("#2a9d57", "D"),
    "hook": ("#8a5fb0", "v"),
    "cross-barrier": ("#c0475a", "P"),
}


def pyplot_or_none() -> Any:
    try:
        import matplotlib
    except ImportError:
        say("no plot: matplotlib is not installed (pip install 'byteps-train[bench]')")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def save(pyplot: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def draw_sizes(path: Path, panels: Mapping[str, Sequence[Series]]) -> Path | None:
    """Speed over tensor size, one panel per cluster, medians with quartile bars."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5.5 * len(panels), 4.2), squeeze=False, sharey=True
    )
    for axis, (title, series) in zip(axes[0], panels.items(), strict=True):
        for peer in dict.fromkeys(one.peer for one in series):
            points = sorted((one for one in series if one.peer == peer), key=lambda one: one.nbytes)
            summaries = [one.summary() for one in points]
            speeds = [one.nbytes / s.median / 1e9 for one, s in zip(points, summaries, strict=True)]
            slower = [
                v - one.nbytes / s.q3 / 1e9 for v, one, s in zip(speeds, points, summaries, strict=True)
            ]
            faster = [
                one.nbytes / s.q1 / 1e9 - v for v, one, s in zip(speeds, points, summaries, strict=True)
            ]
            color, marker = STYLES.get(peer, ("#888888", "x"))
            axis.errorbar(
                [one.nbytes for one in points],
                speeds,
                yerr=[slower, faster],
                label=peer,
                color=color,
                marker=marker,
                capsize=3,
            )
        sizes = sorted({one.nbytes for one in series})
        axis.set(title=title, xscale="log", yscale="log", xlabel="tensor", ylabel="GB/s of tensor per round")
        axis.set_xticks(sizes, [format_bytes(size) for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
    return save(pyplot, figure, path)


def draw_bars(path: Path, panels: Mapping[str, Sequence[Series]]) -> Path | None:
    """Median time per peer with quartile bars, one panel per set of tensors."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    figure, axes = pyplot.subplots(1, len(panels), figsize=(5.5 * len(panels), 4.2), squeeze=False)
    for axis, (title, series) in zip(axes[0], panels.items(), strict=True):
        for one in series:
            summary = one.summary()
            error = [[(summary.median - summary.q1) * 1e3], [(summary.q3 - summary.median) * 1e3]]
            axis.bar(one.peer, summary.median * 1e3, yerr=error, capsize=4, color=STYLES[one.peer][0])
        axis.set(title=title, ylabel="milliseconds", yscale="log")
        axis.grid(alpha=0.3, axis="y")
    return save(pyplot, figure, path)


def draw_memory(path: Path, points: Sequence[Mapping[str, int]]) -> Path | None:
    """Resident memory of the server over rounds."""
    pyplot = pyplot_or_none()
    if pyplot is None:
        return None
    figure, axis = pyplot.subplots(figsize=(6.5, 4.2))
    rounds = [point["rounds"] for point in points]
    for name, color in (("VmHWM", "#d9822b"), ("VmRSS", "#1f6fb4")):
        axis.plot(rounds, [point[name] / 1024**2 for point in points], label=name, color=color)
    axis.set(title="server memory", xlabel="rounds", ylabel="MB", ylim=(0, None))
    axis.grid(alpha=0.3)
    axis.legend()
    return save(pyplot, figure, path)
