"""What servers have been told of tensors, and the answers to workers that wait until they know it. No I/O.

A worker pushes as soon as it hears where a tensor lives, over connections that the scheduler does not see.
What it pushes must be known to the server by then, or the server could not tell it from nonsense. So servers
are told first, and a worker gets its answer when every server has confirmed all that it was told before. The
numbers count through all epochs: what is confirmed late, of an epoch that is over, confirms nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from byteps.control.messages import Member
from byteps.errors import ProtocolError
from byteps.scheduler.value import Value

__all__ = ["Preparations"]

A = TypeVar("A")


class Preparations(Value, Generic[A]):
    """Of one epoch; ``told`` is the last number of the epoch before.

    >>> waiting: Preparations[str] = Preparations([])
    >>> waiting.answer("at once, where there are no servers")
    ['at once, where there are no servers']
    """

    def __init__(self, servers: Sequence[Member], told: int = 0) -> None:
        self._servers = servers
        self._confirmed = [told] * len(servers)
        self.last = told  # number that servers were told
        self._held: deque[tuple[int, A]] = deque()  # and which number each waits for

    def tell(self) -> int:
        """The number of what all servers are about to be told."""
        self.last += 1
        return self.last

    def answer(self, answer: A) -> list[A]:
        """An answer is ready; returns those that may go now."""
        self._held.append((self.last, answer))
        return self._free()

    def confirm(self, server: int, number: int) -> list[A]:
        """A server has taken in everything up to ``number``; returns the answers that may go now."""
        if number > self.last:
            raise ProtocolError(f"{self._servers[server]} is prepared for {number}, and was told {self.last}")
        self._confirmed[server] = max(number, self._confirmed[server])
        return self._free()

    def missing(self) -> str:
        """Which servers the oldest answer waits for; empty when none waits."""
        if not self._held:
            return ""
        wanted = self._held[0][0]
        absent = [
            str(each) for each, done in zip(self._servers, self._confirmed, strict=True) if done < wanted
        ]
        return f"a declaration waits for {', '.join(absent)}"

    def waiting(self) -> list[A]:
        """The answers that wait."""
        return [answer for _, answer in self._held]

    def _free(self) -> list[A]:
        known = min(self._confirmed, default=self.last)
        free = []
        while self._held and self._held[0][0] <= known:
            free.append(self._held.popleft()[1])
        return free
