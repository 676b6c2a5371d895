"""The ratios that ``bps bench compress`` reports, and the goals among them; pure."""

from __future__ import annotations

from collections.abc import Sequence

from byteps.tools.bench.local_goals import Line
from byteps.tools.bench.series import Series, ratio_of
from byteps.tools.bench.stats import Goal, judge

__all__ = ["GOALS", "PEERS", "lines"]

MEMCPY = "memcpy"

# (what, beside) -> at least so many times as fast
GOALS = {
    ("onebit: compress", MEMCPY): 0.7,
    ("onebit scaled: compress with ef", MEMCPY): 0.3,
    ("onebit: decode and add", MEMCPY): 0.7,
    ("topk 0.001: compress", MEMCPY): 0.3,
    ("topk 0.001: compress", "torch.topk 0.001"): 15.0,
    ("randomk 0.001: compress", MEMCPY): 5.0,
    ("dithering 2 linear max: compress", MEMCPY): 0.15,
    ("fp16: compress", MEMCPY): 0.5,
    ("fp16: decode and add", MEMCPY): 0.5,
}
# What does the same work elsewhere.
PEERS = {
    "topk 0.001: compress": "torch.topk 0.001",
    "onebit: compress": "torch.sign and packing",
    "fp16: compress": "torch to fp16",
    "fp16: decode and add": "torch add fp16",
}


def lines(series: Sequence[Series]) -> list[Line]:
    """Every codec beside memcpy, then those that PyTorch has something like beside that."""
    names = [one.peer for one in series if ":" in one.peer]
    pairs = [(name, MEMCPY) for name in names] + [(name, PEERS[name]) for name in names if name in PEERS]
    found = []
    for what, beside in pairs:
        ratio = ratio_of(series, beside, what)
        if ratio is None:
            continue
        target = GOALS.get((what, beside))
        text = "{:.2f} of memcpy" if beside == MEMCPY else f"{{:.1f}} times as fast as {beside}"
        verdict = None if target is None else judge(Goal(what, text, target), ratio)
        found.append(Line(what, beside, ratio, verdict))
    return found
