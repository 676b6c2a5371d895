"""Where the partitions of a tensor are, in few words: lists of places, and how often each repeats. Pure.

A tensor of a terabyte has a quarter of a million partitions, but its places repeat after a few. So they are
kept by the scheduler and sent to workers as runs, and only who has that terabyte writes them out.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Place", "Runs", "count", "spread", "stored"]

Place = tuple[int, int]  # server, shard
Runs = list[tuple[int, list[Place]]]


def count(runs: Runs) -> int:
    """How many partitions they place."""
    return sum(times * len(places) for times, places in runs)


def stored(runs: Runs) -> int:
    """How many places it takes to say so."""
    return sum(len(places) for _, places in runs)


def spread(runs: Runs) -> list[Place]:
    """The place of every partition.

    >>> spread([(2, [(0, 0), (1, 0)]), (1, [(2, 0)])])
    [(0, 0), (1, 0), (0, 0), (1, 0), (2, 0)]
    """
    return [place for times, places in runs for place in places * times]


def once(places: Sequence[Place]) -> Runs:
    """Places that do not repeat; none are no run."""
    return [(1, list(places))] if places else []
