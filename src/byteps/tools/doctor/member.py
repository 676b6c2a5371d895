"""``bpslaunch ... bps doctor``: join as a worker, measure with real operations, and tell rank 0.

Everything goes through the paths that a training job uses: push_pull for latency and bandwidth of the whole,
broadcasts from one worker over one server for the bandwidth of single paths, and the kernel's own count of
round trips and lost packets on those connections.
"""

from __future__ import annotations

import os
import platform
import socket
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from importlib import metadata

import msgspec
import numpy as np

import byteps
from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control.said import unpack
from byteps.errors import ConfigError
from byteps.tools.doctor import job, paths
from byteps.tools.doctor.findings import Finding, merged, ok
from byteps.tools.doctor.paths import ConnectionHealth, Path
from byteps.worker import current
from byteps.worker.interface import Spec
from byteps.worker.session import Session

__all__ = ["examine"]

PUSH_PULL_BYTES = 32 << 20
PATH_BYTES = 4 << 20
REPEATS = 5
SMALL = 50  # push_pulls of one number
MAX_SOURCES, MAX_SERVERS = 16, 16  # of the paths that are measured: enough to find the slow one's neighbours
PACKAGES = ("numpy", "torch", "tensorflow-cpu", "tensorflow", "jax")
_FLOAT32, _TCP_INFO_BYTES = 0, 256


class Report(msgspec.Struct, frozen=True):
    """What one member tells rank 0."""

    findings: list[Finding]
    paths: list[Path]
    connections: list[ConnectionHealth]
    host: str
    packages: str


_decoder = msgspec.msgpack.Decoder(Report)


def examine(config: Config, own: Sequence[Finding]) -> list[Finding] | None:
    """Join, measure, and return the findings of all members on rank 0; None elsewhere."""
    # One server at a time is measured, so a tensor must not be spread over all of them.
    os.environ.setdefault("BYTEPS_PARTITION_BYTES", str(PATH_BYTES))
    byteps.init()
    session = current.required("doctor")
    try:
        findings = [*own, *_whole(session)]
        measured = _paths(session)
        answer = job.ask(config, config.root_uri, config.root_port)  # now, while all are here
        report = Report(findings, measured, _connections(session, answer), socket.gethostname(), packages())
        reports = _gather(session, msgspec.msgpack.encode(report))
        return None if session.rank else _conclude(joined(config.root_uri, config.root_port), answer, reports)
    finally:
        byteps.shutdown()


def packages() -> str:
    """The versions of what has to fit together, found without importing it."""
    found = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _conclude(where: str, answer: job.Answer, reports: list[Report]) -> list[Finding]:
    hosts: dict[tuple[str, int], str] = {}
    if answer.status is not None:
        hosts = {(member.role, member.rank): member.host for member in answer.status.members}

    def names(role: str, rank: int) -> str:
        host = hosts.get((role, rank))
        return f"{role} {rank}" + (f" ({host})" if host else "")

    return [
        *merged(finding for report in reports for finding in report.findings),
        *job.judge(answer, where),
        paths.judge_packages([(report.host, report.packages) for report in reports]),
        *paths.judge_connections(
            [connection for report in reports for connection in report.connections], names
        ),
        *paths.judge([path for report in reports for path in report.paths], names),
    ]


def _whole(session: Session) -> list[Finding]:
    """Latency and bandwidth of push_pull with everybody in it, as rank 0 sees them."""
    one = np.ones(1, np.float32)
    latency = _times(session, SMALL, lambda: byteps.push_pull(one, name="doctor.small"))
    big = np.ones(PUSH_PULL_BYTES // 4, np.float32)
    whole = _times(session, REPEATS, lambda: byteps.push_pull(big, name="doctor.big"))
    if session.rank:
        return []
    speed = PUSH_PULL_BYTES / statistics.median(whole)
    return [
        ok(
            "push_pull",
            f"{statistics.median(latency) * 1e3:.3f} ms for one number, {speed / 1e9:.2f} GB/s for "
            f"{PUSH_PULL_BYTES >> 20} MiB, {session.size} ranks",
        )
    ]


def _times(session: Session, repeats: int, work: Callable[[], object]) -> list[float]:
    work()  # the first time declares the tensor
    session.barrier()
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return found


def _paths(session: Session) -> list[Path]:
    """How long a broadcast from each worker over each server takes to arrive here."""
    elements = min(PATH_BYTES, session.config.partition_bytes) // 4
    data = np.zeros(elements, np.float32)
    tensors = _one_on_each_server(session, elements)
    found = []
    for server, name in sorted(tensors.items())[:MAX_SERVERS]:
        for source in range(min(session.size, MAX_SOURCES)):
            byteps.broadcast(data, source, name=name)
            fastest = float("inf")
            for _ in range(REPEATS):
                session.barrier()
                began = time.perf_counter()
                byteps.broadcast(data, source, name=name)
                fastest = min(fastest, time.perf_counter() - began)
            if session.rank != source:
                found.append(Path(source, server, session.rank, fastest, data.nbytes))
    return found


def _one_on_each_server(session: Session, elements: int) -> dict[int, str]:
    """A tensor on each server, by server; -1 where there are none. The same on every rank."""
    chosen: dict[int, str] = {}
    servers = max(1, session.config.num_server)
    for number in range(4 * servers):
        name = f"doctor.path.{number}"
        session.declare([Spec(name, _FLOAT32, (elements,), "", False)])
        (server,) = {place[0] for place in session.tensors[name].placement} or {-1}
        chosen.setdefault(server, name)
        if len(chosen) == servers:
            break
    return chosen


def _connections(session: Session, answer: job.Answer) -> list[ConnectionHealth]:
    """What the kernel has counted on this rank's connections with each server."""
    if answer.status is None:
        return []
    where = {(each.address, each.port): each.rank for each in answer.status.members if each.role == "server"}
    counted: dict[int, list[tuple[float, int, int]]] = {}
    for fd in session.inherited_fds():
        try:
            with socket.socket(fileno=os.dup(fd)) as sock:
                peer = sock.getpeername()
                server = where.get((peer[0], peer[1])) if isinstance(peer, tuple) else None
                if server is not None:
                    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                    counted.setdefault(server, []).append(_tcp_info(info))
        except OSError:  # no TCP, or closed meanwhile
            continue
    return [
        ConnectionHealth(
            session.rank,
            server,
            min(t for t, _, _ in rows),
            sum(s for _, s, _ in rows),
            sum(a for *_, a in rows),
        )
        for server, rows in counted.items()
    ]


def _tcp_info(info: bytes) -> tuple[float, int, int]:
    """Smallest round trip in seconds, segments sent, segments sent again: offsets of linux/tcp.h."""
    (again,) = struct.unpack_from("<I", info, 100)
    (segments,) = struct.unpack_from("<I", info, 136)
    (smallest_us,) = struct.unpack_from("<I", info, 148)
    return smallest_us / 1e6, segments, again


def _gather(session: Session, own: bytes) -> list[Report]:
    """Every rank's report: each writes into a row of its own, and the sum of all is all of them."""
    if len(own) > 1 << 24:
        raise ConfigError(f"doctor: a report of {len(own)} bytes is too long")
    lengths = np.zeros(session.size, np.int64)
    lengths[session.rank] = len(own)
    lengths = byteps.push_pull(lengths, average=False, name="doctor.lengths")
    rows = np.zeros((session.size, int(lengths.max())), np.uint8)
    rows[session.rank, : len(own)] = np.frombuffer(own, np.uint8)
    rows = byteps.push_pull(rows, average=False, name="doctor.reports")
    return [
        unpack(_decoder, bytes(row[: int(length)]), f"the report of worker {rank}")
        for rank, (row, length) in enumerate(zip(rows, lengths, strict=True))
    ]
