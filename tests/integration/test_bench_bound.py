"""The bound of push-pull moves and sums the right bytes in every shape, and ends when a peer goes."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from byteps import _core
from byteps.tools.bench import exact
from byteps.tools.bench.bound import Wires

TIMEOUT_S = 60


def _close(fd: int) -> None:
    """Break a connection of ``Wires`` without taking the descriptor from it."""
    with socket.socket(fileno=fd) as end:
        end.shutdown(socket.SHUT_RDWR)
        end.detach()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("streams", "chunk_bytes", "window"),
    [(1, 65536, 0), (1, 65536, 2), (2, 4096, 4), (2, 65536, 0), (1, 1 << 20, 1)],
)
def test_every_shape_sums(workers: int, servers: int, streams: int, chunk_bytes: int, window: int) -> None:
    rounds, arrays = 3, [np.empty(100_003, np.float32) for _ in range(workers)]
    for rank, array in enumerate(arrays):
        exact.fill(array, rank)
    wires = Wires(workers, servers, streams)
    nbytes = arrays[0].nbytes
    with ThreadPoolExecutor(workers + servers) as pool:
        futures = [
            pool.submit(
                _core.plain_server,
                wires.server_fds(server),
                first=server * streams,
                total=servers * streams,
                nbytes=nbytes,
                chunk_bytes=chunk_bytes,
                rounds=rounds,
            )
            for server in range(servers)
        ]
        for rank, array in enumerate(arrays):
            fds = [fd for server in wires.worker_fds(rank) for fd in server]
            address = array.ctypes.data
            futures.append(pool.submit(_core.plain_worker, fds, address, nbytes, chunk_bytes, window, rounds))
        for future in futures:
            future.result(TIMEOUT_S)
    wires.close()
    for array in arrays:
        exact.check(array, workers, rounds)


@pytest.mark.parametrize("window", [0, 2])
def test_a_closed_connection_is_an_error_and_no_hang(window: int) -> None:
    wires = Wires(workers=1, servers=1, streams=2)
    array = np.zeros(1 << 20, np.float32)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            _core.plain_worker, wires.worker_fds(0)[0], array.ctypes.data, array.nbytes, 65536, window, 2
        )
        _close(wires.server_fds(0)[1][0])
        with pytest.raises(RuntimeError, match=r"plain sockets: (read|write) on fd"):
            future.result(TIMEOUT_S)
    wires.close()


def test_sizes_that_are_no_float32_are_refused() -> None:
    with pytest.raises(ValueError, match="whole float32"):
        _core.plain_worker([0], 0, 5, 4096, 1, 1)
    with pytest.raises(ValueError, match="at least one stream"):
        _core.plain_worker([], 0, 4, 4096, 1, 1)
