"""The ratios that ``bps bench compress`` reports, and the goals among them; pure."""

from __future__ import annotations

from collections.abc import Sequence

from byteps.tools.bench.local_goals import Line
from byteps.tools.bench.series import Series, ratio_of
from byteps.tools.bench.stats import Goal, judge

__all__ = ["GOALS", "LIBRARIES", "beside", "lines", "ours"]

MEMCPY = "memcpy"
LIBRARIES = ("torch", "NumPy")


def beside(library: str, what: str) -> str:
    """The name of the case in which a library does the work of ours."""
    return f"{library}, {what}"


# (what, beside) -> at least so many times as fast
GOALS = {
    ("onebit: compress", MEMCPY): 0.7,
    ("onebit scaled: compress with ef", MEMCPY): 0.3,
    ("onebit: decode and add", MEMCPY): 0.7,
    ("topk 0.001: compress", MEMCPY): 0.3,
    ("topk 0.001: compress", beside("torch", "topk 0.001: compress")): 15.0,
    ("randomk 0.001: compress", MEMCPY): 5.0,
    ("dithering 2 linear max: compress", MEMCPY): 0.15,
    ("fp16: compress", MEMCPY): 0.5,
    ("fp16: decode and add", MEMCPY): 0.5,
    ("int8: compress", MEMCPY): 0.7,
    ("int8: compress with ef", MEMCPY): 0.4,
    ("int8: decode and add", MEMCPY): 0.7,
    ("int4: compress", MEMCPY): 0.7,
    ("int4: decode and add", MEMCPY): 0.7,
}


def ours(series: Sequence[Series]) -> list[str]:
    """The names of our own cases: codec and step."""
    names = [one.peer for one in series]
    return [name for name in names if ": " in name and not name.startswith(LIBRARIES)]


def lines(series: Sequence[Series]) -> list[Line]:
    """Every codec beside memcpy, then those that PyTorch and NumPy have something like beside that."""
    names = ours(series)
    there = {one.peer for one in series}
    pairs = [(name, MEMCPY) for name in names]
    for library in LIBRARIES:
        pairs += [(name, beside(library, name)) for name in names if beside(library, name) in there]
    found = []
    for what, other in pairs:
        ratio = ratio_of(series, other, what)
        if ratio is None:
            continue
        target = GOALS.get((what, other))
        text = "{:.2f} of memcpy" if other == MEMCPY else f"{{:.1f}} times as fast as {other}"
        verdict = None if target is None else judge(Goal(what, text, target), ratio)
        found.append(Line(what, other, ratio, verdict))
    return found
