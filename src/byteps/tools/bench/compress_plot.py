"""The plot of ``bps bench compress``: the speed of every codec as a fraction of memcpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from byteps.tools.bench.compress_goals import GOALS, MEMCPY, lines
from byteps.tools.bench.plot import pyplot_or_none, save
from byteps.tools.bench.series import Series

__all__ = ["draw_codecs"]

COLORS = {
    "compress": "#1f6fb4",
    "decode": "#8fc7a3",
    "decode and add": "#2a9d57",
    "compress with ef": "#d9822b",
}


def draw_codecs(path: Path, series: Sequence[Series]) -> Path | None:
    """One bar per codec and step, with quartiles; a mark where there is a goal."""
    found = [line for line in lines(series) if line.beside == MEMCPY]
    pyplot = pyplot_or_none() if found else None
    if pyplot is None:
        return None
    figure, axis = pyplot.subplots(figsize=(8, 0.6 + 0.26 * len(found)))
    for place, line in enumerate(found):
        ratio = line.ratio
        error = [[ratio.value - ratio.q1], [ratio.q3 - ratio.value]]
        color = COLORS[line.what.split(": ")[1]]
        axis.barh(place, ratio.value, xerr=error, capsize=2, color=color)
        target = GOALS.get((line.what, MEMCPY))
        if target is not None:
            axis.plot([target], [place], marker="|", markersize=14, color="black")
    axis.set_yticks(range(len(found)), [line.what for line in found])
    axis.invert_yaxis()
    axis.set(xscale="log", xlabel="speed as a fraction of memcpy (|: goal)")
    axis.axvline(1, color="#555555", linewidth=0.8)
    axis.grid(alpha=0.3, axis="x")
    return save(pyplot, figure, path)
