"""The ratios that ``bps bench local`` reports, the goals among them, and the table that shows both; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byteps.tools.bench.series import Series, ratio_of
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge
from byteps.tools.units import format_bytes

__all__ = ["HEADER", "Line", "gradient_lines", "row", "size_lines", "verdicts"]

KB, MB = 1024, 1024**2
HEADER = ("what", "beside", "ratio", "quartiles", "goal", "outcome")

# (ranks, ours, theirs, bytes) -> at least so many times as fast
GOALS = {
    (2, "byteps", "gloo", 4 * KB): 20.0,
    (2, "byteps", "gloo", MB): 8.0,
    (2, "byteps", "gloo", 64 * MB): 3.0,
    (2, "arena", "gloo", 4 * KB): 20.0,
    (2, "arena", "gloo", MB): 12.0,
    (2, "arena", "gloo", 64 * MB): 5.0,
    (2, "arena", "bound", 64 * MB): 0.6,
    (4, "arena", "gloo", MB): 3.0,
    (4, "arena", "gloo", 64 * MB): 3.0,
}
GRADIENTS_GOAL = 3.0
PAIRS = (("byteps", "gloo"), ("arena", "gloo"), ("arena", "bound"))
_OURS = {"byteps": "plain tensors", "arena": "in the arena"}
_THEIRS = {
    "gloo": ("Gloo", "{:.1f} times as fast as Gloo"),
    "bound": ("memory bound", "{:.2f} of the memory bound"),
}


@dataclass(frozen=True)
class Line:
    """One ratio; the verdict is None where no goal was set."""

    what: str
    beside: str
    ratio: Ratio
    verdict: Verdict | None = None


def _line(subject: str, ours: str, theirs: str, ratio: Ratio, target: float | None) -> Line:
    what = f"{subject}, {_OURS[ours]}"
    beside, text = _THEIRS[theirs]
    if target is None:
        return Line(what, beside, ratio)
    # Nothing sums the same bytes in less than the bound takes: more would mean that it was measured badly.
    ceiling = 1.0 if theirs == "bound" else None
    return Line(what, beside, ratio, judge(Goal(what, text, target, ceiling=ceiling), ratio))


def size_lines(ranks: int, series: Sequence[Series]) -> list[Line]:
    """Every ratio of one number of ranks that was measured."""
    found = []
    for nbytes in dict.fromkeys(one.nbytes for one in series):
        for ours, theirs in PAIRS:
            ratio = ratio_of(series, theirs, ours, workers=ranks, nbytes=nbytes)
            if ratio is not None:
                subject = f"{format_bytes(nbytes)}, {ranks} ranks"
                target = GOALS.get((ranks, ours, theirs, nbytes))
                found.append(_line(subject, ours, theirs, ratio, target))
    return found


def gradient_lines(name: str, series: Sequence[Series]) -> list[Line]:
    """The ratios of one set of gradients to Gloo's buckets."""
    found = []
    for ours in _OURS:
        ratio = ratio_of(series, "gloo", ours)
        if ratio is not None:
            found.append(_line(f"gradients of {name}", ours, "gloo", ratio, GRADIENTS_GOAL))
    return found


def verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """Of those that have a goal."""
    return [line.verdict for line in lines if line.verdict is not None]


def row(line: Line) -> list[str]:
    """The cells of a line; the outcome has a ``?`` when it lies within the noise."""
    cells = [
        line.what,
        line.beside,
        f"{line.ratio.value:.2f} x",
        f"{line.ratio.q1:.2f} to {line.ratio.q3:.2f}",
    ]
    if line.verdict is None:
        return [*cells, "", ""]
    outcome = "pass" if line.verdict.reached else "FAIL"
    return [*cells, f"{line.verdict.goal.target:g} x", outcome if line.verdict.clear else f"{outcome} ?"]
