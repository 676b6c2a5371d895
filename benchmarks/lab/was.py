"""The table of the page that says what it was and what it is, with nothing set. Pure.

What it was was measured before ADR 10, in a lab of another make; what it is comes from the result files of
``theory.py`` and ``step.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from byteps.tools.bench.stats import quantile
from byteps.tools.units import format_time

__all__ = ["rows"]

One = dict[str, Any]  # a series of a result file
UNKNOWN = "not measured"


def rows(theory: Sequence[One], step: Sequence[One]) -> list[list[str]]:
    """What, what it was, what it is."""
    sums = [one for one in theory if one["notes"]["rate_mbit"] == 200]
    usual = [one for one in sums if one["notes"]["load"] == "16M"]
    clones = [one for one in usual if one["notes"]["one_name"]]
    named = [one for one in usual if not one["notes"]["one_name"]]
    small = [
        one for one in sums
        if (one["notes"]["case"], one["notes"]["load"]) == ("4+4", "1M")
        and one["notes"].get("kind") != "wires"
    ]  # fmt: skip
    steps = [one for one in step if (one["notes"]["case"], one["notes"]["rate_mbit"]) == ("4+4", 200)]
    return [
        ["4+4, 16 MB, MTU 9000", "1.08 to 1.17", over_optimum(named, case="4+4", mtu=9000)],
        ["4+4, 16 MB, MTU 1500", "1.20 to 1.43", over_optimum(named, case="4+4", mtu=1500)],
        ["4+4, 16 MB, one host name", "1.27 to 1.54", over_optimum(clones, case="4+4")],
        ["4+2, 16 MB, MTU 9000", "1.75", over_optimum(named, case="4+2", mtu=9000)],
        ["4+4, one tensor of 1 MB", "0.19 to 0.21 s (Gloo 0.064 s)",
         times(small, {"byteps": "", "gloo": "Gloo "})],
        ["4+4, a step of training, 16.8 MB", "1.10 s (DDP 1.07 s, Horovod 1.08 s)",
         times(steps, {"optimizer": "", "ddp-gloo": "DDP ", "kvstore": "KVStore "})],
    ]  # fmt: skip


def over_optimum(series: Sequence[One], **notes: object) -> str:
    """The medians of ours in all labs that fit, from the least to the largest."""
    found = [
        quantile(one["samples_s"], 0.5) / one["notes"]["optimum_s"]
        for one in series
        if one["peer"] == "byteps" and all(one["notes"][name] == value for name, value in notes.items())
    ]
    if not found:
        return UNKNOWN
    return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(found), max(found))))


def times(series: Sequence[One], names: dict[str, str]) -> str:
    """The median of the first, and those of the others in brackets."""
    medians = {one["peer"]: format_time(quantile(one["samples_s"], 0.5)) for one in series}
    told = [f"{name}{medians[peer]}" for peer, name in names.items() if peer in medians]
    if not told:
        return UNKNOWN
    return told[0] + (f" ({', '.join(told[1:])})" if told[1:] else "")
