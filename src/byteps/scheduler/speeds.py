"""Shares for links of different speed: no link takes longer than the slowest one must. Pure.

Let n worker machines move M bytes each, and a machine hold a share x of the servers' bytes. As in
``shares.py`` the bytes that leave it are those that come in, so the slower direction v of its link decides:

    with a worker:     (1 + (n - 2) x) M / v
    with servers only:  n x M / v

A time T lets each machine hold what its link carries by then: (T v - 1) / (n - 2), or T v / n. Every worker
must be through with its own bytes, T >= 1 / v, and beyond that what all can hold grows evenly with T. So the
least T at which all shares find a place is found without a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Machine", "least_time", "shares_by_speed"]


@dataclass(frozen=True)
class Machine:
    """What is on a machine, and how fast its link is in each direction, in any unit that all have."""

    worker: bool
    server: bool
    up: Fraction
    down: Fraction

    @property
    def speed(self) -> Fraction:
        return min(self.up, self.down)


def least_time(machines: Sequence[Machine]) -> Fraction:
    """Of a round in which every worker contributes one unit of bytes.

    >>> full, half = Fraction(1), Fraction(1, 2)
    >>> least_time([Machine(True, False, full, full)] * 2 + [Machine(False, True, full, half)])
    Fraction(4, 1)
    """
    workers = [each for each in machines if each.worker]
    beside = [each for each in workers if each.server]
    alone = [each for each in machines if each.server and not each.worker]
    if not beside and not alone:
        raise ValueError("no machine has a server")
    n = len(workers)
    if n == 1 and beside:
        return Fraction(0)  # what its own machine holds never leaves it
    own = max((1 / each.speed for each in workers), default=Fraction(0))
    if n == 2 and beside:
        return own  # the more a worker machine holds, the less of its own leaves it
    each_beside = Fraction(1, n - 2) if beside else Fraction(0)
    growth = sum((each.speed * each_beside for each in beside), Fraction(0))
    growth += sum((each.speed / n for each in alone), Fraction(0))
    return max(own, (1 + len(beside) * each_beside) / growth)


def shares_by_speed(machines: Sequence[Machine]) -> list[Fraction]:
    """The share of every machine, in their order; where there is a choice, links are about as full.

    >>> one, ten = Fraction(1), Fraction(10)
    >>> servers = [Machine(False, True, each, each) for each in (one, ten)]
    >>> [str(each) for each in shares_by_speed([Machine(True, False, one, one)] * 4 + servers)]
    ['0', '0', '0', '0', '1/11', '10/11']
    """
    time, n = least_time(machines), sum(each.worker for each in machines)
    beside = sum(each.worker and each.server for each in machines)
    if n <= 2 and beside:
        alone = sum(
            (time * each.speed / n for each in machines if each.server and not each.worker), Fraction(0)
        )
        rest = max(Fraction(0), 1 - alone) / beside
        room = [_room(each, n, time, rest) for each in machines]
    else:
        room = [_room(each, n, time, None) for each in machines]
    total = sum(room, Fraction(0))
    return [each / total for each in room]


def _room(machine: Machine, n: int, time: Fraction, beside: Fraction | None) -> Fraction:
    """What it can hold so that its link is through in time; ``beside``: what a worker machine holds."""
    if not machine.server:
        return Fraction(0)
    if not machine.worker:
        return time * machine.speed / n
    return beside if beside is not None else (time * machine.speed - 1) / (n - 2)
