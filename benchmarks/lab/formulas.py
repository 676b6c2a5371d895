"""What theory says of a push-pull on links: the least time, and the bytes that every link carries. Pure.

n worker machines contribute M bytes each, k machines have a server only, every link carries B in each
direction at once. With k < n every worker machine has a server too; from k = n on they would hold nothing.
"""

from __future__ import annotations

from byteps.scheduler.shares import machine_shares
from byteps.tools.lab.layout import Layout

__all__ = ["layout_of", "link_bytes", "optimum_s", "ring_s"]


def layout_of(workers: int, extra: int) -> Layout:
    """Which machines have a server, for the least time.

    >>> str(layout_of(4, 2))
    '4 workers, 4 servers beside them, 2 on their own'
    """
    return Layout(workers, workers if extra < workers else 0, extra)


def optimum_s(workers: int, extra: int, nbytes: int, rate_mbit: float) -> float:
    """The least time of a sum through servers: 2n(n-1)M / ((n² + kn - 2k)B).

    >>> optimum_s(4, 4, 12_500_000, 100)
    1.0
    """
    n, k = workers, extra
    if n == 1:
        return _seconds(nbytes, rate_mbit)  # to its server and back, at the same time
    return _seconds(2 * n * (n - 1) * nbytes / (n * n + k * n - 2 * k), rate_mbit)


def ring_s(workers: int, nbytes: int, rate_mbit: float) -> float:
    """The least time of an all-reduce among the workers alone: 2(n-1)M / (nB).

    >>> ring_s(4, 12_500_000, 100)
    1.5
    """
    return _seconds(2 * (workers - 1) * nbytes / workers, rate_mbit)


def link_bytes(layout: Layout, nbytes: int) -> dict[str, float]:
    """What every link carries in each direction in one round, by host."""
    x, y = machine_shares(layout.workers, layout.beside, layout.extra)
    n = layout.workers
    on_worker = float((1 - x) + (n - 1) * x) * nbytes
    on_server = float(n * y) * nbytes
    return {host.name: on_worker if host.name.startswith("w") else on_server for host in layout.hosts[1:]}


def _seconds(nbytes: float, rate_mbit: float) -> float:
    return nbytes * 8 / (rate_mbit * 1e6)
