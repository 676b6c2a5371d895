"""Which connections of which workers a server has, by the tag under which the core tells of their end. Pure.

A rank has one connection to each shard. One that breaks may have a successor before the core has told of its
end: the end of a connection that has a successor is no news.
"""

from __future__ import annotations

import itertools

__all__ = ["Connections"]


class Connections:
    """By tag, and by (rank, shard).

    >>> known = Connections()
    >>> first, second = known.add(3, 0), known.add(3, 0)
    >>> known.ended(first), known.ended(second), known.ended(second)
    (None, (3, 0), None)
    """

    def __init__(self) -> None:
        self._tags = itertools.count(1)  # of all epochs: a late end of an old one is nobody's
        self._places: dict[int, tuple[int, int]] = {}
        self._current: dict[tuple[int, int], int] = {}

    def __contains__(self, place: tuple[int, int]) -> bool:
        return place in self._current

    def add(self, rank: int, shard: int) -> int:
        """The tag of a connection that takes the place of the one before it, if there is one."""
        tag = next(self._tags)
        before = self._current.get((rank, shard))
        if before is not None:
            del self._places[before]
        self._current[rank, shard] = tag
        self._places[tag] = rank, shard
        return tag

    def ended(self, tag: int) -> tuple[int, int] | None:
        """The rank and shard that have no connection any more; None if they have another one."""
        place = self._places.pop(tag, None)
        if place is not None:
            del self._current[place]
        return place

    def clear(self) -> None:
        """The epoch is over."""
        self._places.clear()
        self._current.clear()
