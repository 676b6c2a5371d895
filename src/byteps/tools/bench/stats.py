"""Medians, spread, ratios and goals of a benchmark: pure functions over lists of samples.

Noise on a shared machine is one-sided and comes in bursts, so a median of interleaved repetitions stands for
each side, quartiles show the spread, and a ratio is formed repetition by repetition: what disturbed one
repetition disturbed both sides of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Goal", "Ratio", "Summary", "Verdict", "judge", "orders", "quantile", "speed_ratio", "summarize"]

T = TypeVar("T")


@dataclass(frozen=True)
class Summary:
    """What a list of samples comes down to."""

    count: int
    median: float
    q1: float
    q3: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """How fast one side is as a multiple of the other: median and quartiles of the pairs."""

    value: float
    q1: float
    q3: float

    @classmethod
    def of(cls, pairs: Sequence[float]) -> Ratio:
        """From the ratio of each repetition."""
        return cls(quantile(pairs, 0.5), quantile(pairs, 0.25), quantile(pairs, 0.75))

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.q1:.2f} to {self.q3:.2f}]"

    def differs(self, than: float = 1.0) -> bool:
        """False when the spread is larger than the difference: then there is nothing to tell.

        >>> Ratio(1.5, 1.4, 1.6).differs(), Ratio(1.02, 1.01, 1.06).differs(), Ratio(1.0, 1.0, 1.0).differs()
        (True, False, False)
        """
        return self.value != than and self.q3 - self.q1 <= abs(self.value - than)


@dataclass(frozen=True)
class Goal:
    """A number to reach. ``text`` is printed with the actual value in place of ``{}``."""

    subject: str
    text: str
    target: float
    at_most: bool = False
    # The best value that is possible. A better one means that what we compare with was measured badly.
    ceiling: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a goal. It is not ``clear`` when the target lies inside the quartiles of the pairs.

    A value that cannot be true is not clear either, and reaches nothing.
    """

    goal: Goal
    actual: float | None
    q1: float | None = None
    q3: float | None = None

    @property
    def reached(self) -> bool:
        if self.actual is None or self.impossible:
            return False
        return self.actual <= self.goal.target if self.goal.at_most else self.actual >= self.goal.target

    @property
    def impossible(self) -> bool:
        """Better than the ceiling, and not by the spread alone."""
        edge = self.actual if self.q1 is None else self.q1
        return self.goal.ceiling is not None and edge is not None and edge > self.goal.ceiling

    @property
    def clear(self) -> bool:
        if self.impossible:
            return False
        if self.q1 is None or self.q3 is None:
            return True
        return not self.q1 <= self.goal.target <= self.q3

    def line(self) -> str:
        """The line people read: subject, actual value, goal, outcome.

        >>> Verdict(Goal("64 MB, 2 workers + 1 server", "{:.2f} of the bound", 0.9), 0.93).line()
        '64 MB, 2 workers + 1 server: 0.93 of the bound (goal 0.9): reached'
        """
        limit = f"goal {'at most ' if self.goal.at_most else ''}{self.goal.target:g}"
        if self.actual is None:
            return f"{self.goal.subject}: not measured ({limit})"
        outcome = "reached" if self.reached else "not reached"
        if self.impossible:
            outcome = f"not believed, more than {self.goal.ceiling:g} cannot be; run again on a quiet machine"
        elif not self.clear:
            outcome += f", but within the noise (quartiles {self.q1:.3g} to {self.q3:.3g})"
        return f"{self.goal.subject}: {self.goal.text.format(self.actual)} ({limit}): {outcome}"


def quantile(samples: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the two nearest samples.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    if not samples:
        raise ValueError("quantile of no samples")
    ordered = sorted(samples)
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def summarize(samples: Sequence[float]) -> Summary:
    return Summary(
        count=len(samples),
        median=quantile(samples, 0.5),
        q1=quantile(samples, 0.25),
        q3=quantile(samples, 0.75),
        low=min(samples),
        high=max(samples),
    )


def speed_ratio(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Ratio:
    """How many times as fast we are, from times of the same repetitions: 2.0 means half of their time.

    >>> speed_ratio([1.0, 1.0, 1.0], [2.0, 2.0, 4.0]).value
    2.0
    """
    if len(ours_s) != len(theirs_s):
        raise ValueError(f"paired samples expected, got {len(ours_s)} and {len(theirs_s)}")
    return Ratio.of([theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)])


def judge(goal: Goal, ratio: Ratio | None) -> Verdict:
    return Verdict(goal, None) if ratio is None else Verdict(goal, ratio.value, ratio.q1, ratio.q3)


def orders(peers: Sequence[T], repeats: int, seed: int = 1) -> list[list[T]]:
    """The order of the peers in each repetition: shuffled, so that none always follows the same one."""
    source = random.Random(seed)
    return [source.sample(list(peers), len(peers)) for _ in range(repeats)]
