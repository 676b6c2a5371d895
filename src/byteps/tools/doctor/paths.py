"""Which member is slow: pure, from times of transfers between members to findings.

A *path* goes from one worker over one server to another worker (over memory, where they share a machine). One
slow path says little; a member whose paths are all slow, beside those of the others, is the one to look at.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from byteps.tools.doctor.findings import Finding, ok, warn

__all__ = ["ConnectionHealth", "Path", "judge", "judge_connections", "judge_packages"]

SLOW = 0.5  # of the median of the others
LOSSY = 1e-3  # of all segments, sent again


@dataclass(frozen=True)
class Path:
    """``size_bytes`` from worker ``source`` over ``server`` (-1: none) to worker ``target``."""

    source: int
    server: int
    target: int
    seconds: float
    size_bytes: int

    @property
    def speed(self) -> float:
        """In bytes per second."""
        return self.size_bytes / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class ConnectionHealth:
    """The TCP connections of a worker with a server, as the kernel counted them."""

    worker: int
    server: int
    round_trip_s: float
    segments: int
    again: int  # segments that had to be sent again


def judge(paths: list[Path], names: Callable[[str, int], str]) -> list[Finding]:
    """Findings about bandwidth; ``names(role, rank)`` is how a member is called."""
    check = "bandwidth"
    if not paths:
        return []
    speeds = [path.speed for path in paths]
    summary = f"{_rate(statistics.median(speeds))} between members (slowest {_rate(min(speeds))})"
    slow = [*_slow(paths, "worker", lambda path: path.source, "sends")]
    slow += _slow(paths, "worker", lambda path: path.target, "receives")
    slow += _slow(paths, "server", lambda path: path.server, "serves")
    if not slow:
        return [ok(check, f"{summary}, nobody stands out")]
    return [
        ok(check, summary),
        *(
            warn(
                check,
                f"{names(role, rank)} {verb} at {_rate(own)}, the others at {_rate(others)}",
                "look at that machine: cable and switch port (ethtool), other programs (top), its interface "
                "(DMLC_INTERFACE), and whether it is in the same zone as the others",
            )
            for role, rank, verb, own, others in slow
        ),
    ]


def _slow(
    paths: list[Path], role: str, member: Callable[[Path], int], verb: str
) -> Iterable[tuple[str, int, str, float, float]]:
    """Members whose median is far below the median of all others in the same part."""
    speeds: dict[int, list[float]] = {}
    for path in paths:
        speeds.setdefault(member(path), []).append(path.speed)
    if len(speeds) < 3:  # of two, nobody can say which is the slow one and which is fast
        return
    for rank, own in sorted(speeds.items()):
        others = statistics.median(speed for other, each in speeds.items() if other != rank for speed in each)
        if statistics.median(own) < SLOW * others:
            yield role, rank, verb, statistics.median(own), others


def judge_packages(rows: Iterable[tuple[str, str]]) -> Finding:
    """Whether all hosts have the same versions of what computes; ``rows`` are (host, versions)."""
    check = "packages"
    hosts: dict[str, list[str]] = {}
    for host, versions in rows:
        hosts.setdefault(versions, []).append(host)
    listed = "; ".join(f"{versions} [{', '.join(dict.fromkeys(each))}]" for versions, each in hosts.items())
    if len(hosts) == 1:
        return ok(check, f"the same everywhere: {next(iter(hosts))}")
    remedy = "install the same versions everywhere: results and saved files may differ between them"
    return warn(check, f"not the same everywhere: {listed}", remedy)


def judge_connections(connections: list[ConnectionHealth], names: Callable[[str, int], str]) -> list[Finding]:
    """Findings about round trips and lost packets."""
    if not connections:
        return []
    trips = [connection.round_trip_s for connection in connections]
    widest = max(connections, key=lambda connection: connection.round_trip_s)
    far = f"{names('worker', widest.worker)} to {names('server', widest.server)}"
    found = [
        ok(
            "round trip",
            f"{statistics.median(trips) * 1e3:.3f} ms between workers and servers "
            f"(longest {widest.round_trip_s * 1e3:.3f} ms, {far})",
        )
    ]
    lossy = [
        connection
        for connection in connections
        if connection.segments >= 1000 and connection.again / connection.segments > LOSSY
    ]
    for connection in lossy:
        found.append(
            warn(
                "packet loss",
                f"{connection.again} of {connection.segments} segments had to be sent again, "
                f"{names('worker', connection.worker)} to {names('server', connection.server)}",
                "look for errors with `ethtool -S` and `ip -s link`; the MTU must be the same on all "
                "machines and on the switches between them",
            )
        )
    if not lossy:
        found.append(
            ok(
                "packet loss",
                f"none worth a word in {sum(connection.segments for connection in connections)} segments",
            )
        )
    return found


def _rate(speed: float) -> str:
    return f"{speed / 1e9:.2f} GB/s" if speed >= 1e9 else f"{speed / 1e6:.1f} MB/s"
