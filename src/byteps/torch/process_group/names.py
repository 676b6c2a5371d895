"""Which declared tensors the operations of a process group use: names made from the order of calls. Pure.

Every rank calls the operations of a group in one order, so a table that changes with each call is the same
everywhere without a message. Operations on one tensor take turns; a few names for every size let some of the
same size be in flight together, such as the buckets of DDP. The table is bounded: the size that was not used
for longest gives its names to a new one, which declares them anew.
"""

from __future__ import annotations

import threading

__all__ = ["Names"]

ROOM = 256  # sizes
TURNS = 4  # names for each size


class Names:
    """The names of one group. Thread-safe, but the order of calls is what ranks must agree on."""

    def __init__(self, prefix: str, room: int = ROOM, turns: int = TURNS) -> None:
        self._prefix = prefix
        self._room = room
        self._turns = turns
        # (dtype, elements) -> (place, calls); what was used last is last
        self._used: dict[tuple[int, int], tuple[int, int]] = {}
        self._lock = threading.Lock()

    def next(self, dtype: int, elements: int) -> str:
        """The name for the next operation on a tensor of this dtype (by number) and size."""
        with self._lock:
            place, calls = self._used.pop((dtype, elements), (-1, 0))
            if place < 0:
                place = self._new_place()
            self._used[dtype, elements] = place, calls + 1
        return f"{self._prefix}.{place}.{calls % self._turns}"

    def _new_place(self) -> int:
        if len(self._used) < self._room:
            return len(self._used)
        oldest = next(iter(self._used))
        return self._used.pop(oldest)[0]
