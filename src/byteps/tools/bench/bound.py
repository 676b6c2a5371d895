"""The bound of push-pull from Python: its shapes, its sockets, and the search for the fastest shape.

The bound itself is native/bench/plain_sockets.h: plain blocking sockets and one summing process per
server, with no protocol. Here its sockets are made, both ends by the director, and inherited.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byteps.tools.bench.stats import quantile

__all__ = ["FINALISTS", "IN_FLIGHT_BYTES", "Shape", "Wires", "candidates", "shortlist"]

# Two blocking writes wait for each other when more is in flight than the kernel buffers. On loopback the
# kernel starts with more than a megabyte for each direction.
IN_FLIGHT_BYTES = 512 * 1024
SOCKET_TIMEOUT_S = 60

_CHUNKS = (64 * 1024, 96 * 1024, 128 * 1024, 256 * 1024)
_WINDOWS = (0, 2, 4)
_TRIALS = 3
FINALISTS = 4


@dataclass(frozen=True)
class Shape:
    """How the bound moves a tensor: see native/bench/plain_sockets.h."""

    streams: int
    chunk_bytes: int
    window: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """``"2x131072x2"``: streams, bytes of a chunk, chunks in flight (0: two threads)."""
        try:
            streams, chunk_bytes, window = (int(part) for part in text.split("x"))
        except ValueError:
            raise ValueError(f"STREAMSxCHUNKxWINDOW expected, such as 2x131072x2; got {text!r}") from None
        shape = cls(streams, chunk_bytes, window)
        if not 1 <= streams <= max_streams() or chunk_bytes <= 0 or chunk_bytes % 4 or window < 0:
            raise ValueError(f"streams 1 to {max_streams()}, whole float32 in a chunk; got {text!r}")
        if window * chunk_bytes > IN_FLIGHT_BYTES:
            raise ValueError(f"at most {IN_FLIGHT_BYTES} bytes in flight; got {text!r}")
        return shape


def max_streams() -> int:
    """More streams than cores only add switches between threads."""
    return min(4, len(os.sched_getaffinity(0)))


def candidates(nbytes: int, streams: int) -> list[Shape]:
    """The shapes worth a try for a tensor of this size; small ones have nothing to overlap."""
    if nbytes <= _CHUNKS[0]:
        return [Shape(1, max(nbytes, 4), 1)]
    return [
        Shape(count, chunk, window)
        for count in sorted({1, min(2, streams), streams})
        for chunk in _CHUNKS
        for window in _WINDOWS
        if chunk * count <= nbytes and chunk * window <= IN_FLIGHT_BYTES
    ]


def shortlist(
    shapes: Sequence[Shape], measure: Callable[[Shape], float]
) -> tuple[list[Shape], dict[Shape, list[float]]]:
    """The fastest few shapes, best first, and every time that was measured.

    A few samples on a noisy machine do not find the fastest one, and a slow bound would flatter us. So
    several go on into the measurement itself, and the fastest of them over all repetitions is the bound.
    """
    times: dict[Shape, list[float]] = {shape: [] for shape in shapes}
    if len(shapes) > 1:
        for _ in range(_TRIALS):
            for shape in shapes:
                times[shape].append(measure(shape))
    ranked = sorted(shapes, key=lambda shape: quantile(times[shape] or [0.0], 0.5))
    return ranked[:FINALISTS], times


class Wires:
    """Connected loopback sockets from every worker to every summing process; both ends are made here."""

    def __init__(self, workers: int, servers: int, streams: int) -> None:
        self.streams = streams
        # [worker][server][stream]: the end of the worker, the end of the server
        self._pairs = [
            [[_connection() for _ in range(streams)] for _ in range(servers)] for _ in range(workers)
        ]

    def worker_fds(self, worker: int) -> list[list[int]]:
        """[server][stream]"""
        return [[near.fileno() for near, _ in streams] for streams in self._pairs[worker]]

    def server_fds(self, server: int) -> list[list[int]]:
        """[stream][worker]"""
        return [
            [worker[server][stream][1].fileno() for worker in self._pairs] for stream in range(self.streams)
        ]

    def close(self) -> None:
        """The members have inherited them; this process must not keep a dead member's connection open."""
        for worker in self._pairs:
            for streams in worker:
                for near, far in streams:
                    near.close()
                    far.close()


def _connection() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        near = socket.create_connection(listener.getsockname(), timeout=SOCKET_TIMEOUT_S)
        far, _ = listener.accept()
    limit = struct.pack("ll", SOCKET_TIMEOUT_S, 0)
    for end in (near, far):
        end.settimeout(None)  # blocking for the kernel; the limit below holds in native code too
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return near, far
