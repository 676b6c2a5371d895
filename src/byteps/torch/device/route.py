"""How a tensor of a device travels, decided from the numbers of ranks on all machines; pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

__all__ = ["Route", "choose", "chunk", "part"]


class Route(Enum):
    """
    MACHINE  one machine without servers: one all_reduce
    RAILS    reduce_scatter, every rank pushes its own part and gets it back, all_gather
    LEADER   reduce to local rank 0, which pushes everything alone, broadcast

    RAILS uses every rank's connections and copies at once. It needs the same parts on all machines, so
    machines with different numbers of ranks go by LEADER.
    """

    MACHINE = "machine"
    RAILS = "rails"
    LEADER = "leader"


def choose(local_sizes: Sequence[int], serverless: bool) -> Route:
    """The way for the whole job; every rank knows the same numbers, so all choose the same.

    >>> choose([2, 2], serverless=False), choose([2, 1], serverless=False)
    (<Route.RAILS: 'rails'>, <Route.LEADER: 'leader'>)
    """
    if serverless:
        return Route.MACHINE
    return Route.RAILS if len(set(local_sizes)) == 1 else Route.LEADER


def chunk(elements: int, ranks: int) -> int:
    """Elements that reduce_scatter gives to each rank: equal for all, so the last parts may be padding.

    >>> chunk(10, 4)
    3
    """
    return -(-elements // ranks)


def part(elements: int, ranks: int, rank: int) -> int:
    """Elements of a rank's chunk that are not padding.

    >>> [part(10, 4, rank) for rank in range(4)]
    [3, 3, 3, 1]
    """
    size = chunk(elements, ranks)
    return max(0, min(size, elements - rank * size))
