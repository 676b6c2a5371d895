"""Mixed mode: how much of every tensor each server holds, so that no link carries more than it must. Pure.

Let n worker machines move M bytes each, c of them with a server of their own beside the worker, and k more
machines have servers only. A server beside a worker holds a share x, one on its own machine a share y. Of a
worker machine's traffic, its own share never leaves it, but it answers the n - 1 others:

    leaves a worker machine with a server:  (1 - x) M + (n - 1) x M   (the same comes in)
    leaves a machine with servers only:     n y M
    all shares:                             c x + k y = 1

The slowest link decides. It is fastest when both kinds carry the same, 1 + (n - 2) x = n y, so

    x = (n - k) / (c n + k (n - 2)),   y = (1 - c x) / k

With c = n that is the optimum of the BytePS paper (OSDI 2020): x = (n - k) / D and y = 2 (n - 1) / D with
D = n^2 + k n - 2 k. From k = n on the servers beside workers hold nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from byteps.control.machine import key
from byteps.control.messages import Member, View
from byteps.scheduler.speeds import Machine, shares_by_speed

__all__ = ["machine_shares", "server_shares", "shares_of", "why_not_by_speed"]

_PARTS = 1_000  # the most parts that shares by speed are cut into: places repeat after so many partitions


def machine_shares(workers: int, beside: int, extra: int) -> tuple[Fraction, Fraction]:
    """The shares (x, y) of a machine with worker and server, and of one with servers only.

    >>> machine_shares(4, 4, 2)
    (Fraction(1, 10), Fraction(3, 10))
    """
    if not beside:
        return Fraction(0), Fraction(1, extra) if extra else Fraction(0)
    if not extra or workers == 1:  # a worker alone: what its own machine holds never leaves it
        return Fraction(1, beside), Fraction(0)
    x = max(Fraction(0), Fraction(workers - extra, beside * workers + extra * (workers - 2)))
    return x, (1 - beside * x) / extra


def server_shares(worker_hosts: Sequence[str], server_hosts: Sequence[str], forced: bool) -> list[Fraction]:
    """The share of every server, in the order of ``server_hosts``; servers of one machine share evenly.

    ``forced`` is BYTEPS_ENABLE_MIXED_MODE=1, for machines that cannot be told apart: then, as
    in the original, the last servers are beside workers, as many as there are workers, and the others alone.

    >>> [str(share) for share in server_shares(["a", "b"], ["a", "b", "c"], False)]
    ['1/4', '1/4', '1/2']
    """
    machines = list(server_hosts)
    workers = set(worker_hosts)
    if forced and (workers.isdisjoint(machines) or workers.issuperset(machines)):
        machines = [str(rank) for rank in range(len(server_hosts))]
        workers = set(machines[-len(worker_hosts) :])
    count = Counter(machines)
    beside = len(workers & count.keys())
    x, y = machine_shares(len(workers), beside, len(count) - beside)
    return [(x if machine in workers else y) / count[machine] for machine in machines]


def why_not_by_speed(view: View, forced: bool) -> str:
    """Why the speeds that members have told do not decide, and what to do; nothing if they do, or none is."""
    told = {key(member) for member in view.members if member.machine.up}
    if not told:
        return ""
    if forced:
        return "BYTEPS_ENABLE_MIXED_MODE=1 decides what servers hold; leave one of them out"
    silent = {key(member): str(member) for member in view.members if key(member) not in told}
    if not silent:
        return ""
    machines = f"machine{'s' * (len(silent) > 1)} of {', '.join(silent.values())}"
    return f"not told on the {machines}; set it there, too, or speed= in the host file"


def shares_of(view: View, forced: bool) -> list[Fraction]:
    """The shares of the servers of a job; by the speeds of their links if every machine says its own."""
    if any(member.machine.up for member in view.servers()) and not why_not_by_speed(view, forced):
        return _by_speed(view)
    first_of_machine = {worker.worker_id: key(worker) for worker in reversed(view.workers())}
    machines = [first_of_machine[worker_id] for worker_id in sorted(first_of_machine)]
    return server_shares(machines, [key(server) for server in view.servers()], forced)


def _by_speed(view: View) -> list[Fraction]:
    """Servers of one machine share evenly; of members that say different things of one link, the least."""
    at: dict[str, list[Member]] = {}
    for member in view.members:
        at.setdefault(key(member), []).append(member)
    machines = [_linked(members) for members in at.values()]
    share = dict(zip(at, _whole_parts(shares_by_speed(machines)), strict=True))
    count = Counter(key(server) for server in view.servers())
    return [share[key(server)] / count[key(server)] for server in view.servers()]


def _linked(members: Sequence[Member]) -> Machine:
    told = [member.machine for member in members if member.machine.up]
    roles = {member.role for member in members}
    up, down = min(each.up for each in told), min(each.down for each in told)
    return Machine("worker" in roles, "server" in roles, Fraction(up), Fraction(down))


def _whole_parts(shares: Sequence[Fraction]) -> list[Fraction]:
    """The same shares if they are of few parts, else about the same, of ``_PARTS``; they still add up to 1.

    >>> [str(each) for each in _whole_parts([Fraction(1, 13), Fraction(12, 13)])]
    ['1/13', '12/13']
    >>> [str(each) for each in _whole_parts([Fraction(1, 3001), Fraction(3000, 3001)])]
    ['0', '1']
    """
    if math.lcm(*(share.denominator for share in shares)) <= _PARTS:
        return list(shares)
    parts = [math.floor(share * _PARTS) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda each: parts[each] - shares[each] * _PARTS)
    for each in by_rest[: _PARTS - sum(parts)]:
        parts[each] += 1
    return [Fraction(each, _PARTS) for each in parts]
