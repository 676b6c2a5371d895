"""What the ranks of a job do while its connections are broken, and how a test breaks them."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from byteps.testing import Cluster, report

ELEMENTS = 150_000
ONEBIT = {"compressor": "onebit", "ef": "vanilla"}
TOPK = {"compressor": "topk", "k": 0.05, "ef": "vanilla", "momentum": "nesterov"}


def exchange(steps: int) -> dict[str, Any]:
    """Every kind of payload, in every step; exact sums where there are any, and the digest of all results."""
    import numpy as np
    import torch

    import byteps
    import byteps.torch as bps

    bps.init()
    rank, size = bps.rank(), bps.size()
    everybody = sum(4.0**each for each in range(size))
    digest = hashlib.sha256()
    noise = np.random.default_rng(rank)
    for step in range(steps):
        factor = float(step % 7 + 1)
        mine = torch.full((ELEMENTS,), 4.0**rank * factor)
        gradient = torch.from_numpy(noise.standard_normal(ELEMENTS).astype(np.float32))
        halves = gradient[:40_000].half()
        root = step % size
        sent = torch.arange(5_000, dtype=torch.int64) * (rank + 1) + step
        handles = [
            bps.push_pull_async_inplace(mine, average=False, name="sum"),
            bps.push_pull_async_inplace(halves, average=True, name="halves"),
            bps.push_pull_async(gradient, average=True, name="onebit", compression_params=ONEBIT),
            bps.push_pull_async(gradient, average=True, name="topk", compression_params=TOPK),
            bps.broadcast_async(sent, root, name="broadcast"),
        ]
        results = [bps.synchronize(handle) for handle in handles]
        assert torch.equal(results[0], torch.full((ELEMENTS,), everybody * factor)), (step, results[0])
        assert torch.equal(sent, torch.arange(5_000, dtype=torch.int64) * (root + 1) + step), (step, sent)
        for result in results:
            digest.update(result.numpy().tobytes())
        if step == 3:
            report("running")
    return {"digest": digest.hexdigest(), "reconnections": byteps.counters()["reconnections"]}


def accumulate(steps: int) -> dict[str, Any]:
    """Asynchronous: each contribution is added once, whatever happens to its connection."""
    import numpy as np

    import byteps as bps

    bps.init()
    value = np.zeros(ELEMENTS, np.float32)
    bps.broadcast(value, 0, name="value")
    for step in range(steps):
        bps.push_pull(np.full(ELEMENTS, 4.0 ** bps.rank(), np.float32), average=False, name="value")
        if step == 3:
            report("running")
    bps.barrier()
    total = bps.push_pull(np.zeros(ELEMENTS, np.float32), average=False, name="value")
    expected = steps * sum(4.0**rank for rank in range(bps.size()))
    assert np.all(total == expected), (total, expected)
    return {"digest": "", "reconnections": bps.counters()["reconnections"]}


# Breaking connections


def why_no_resets() -> str:
    """Why connections cannot be reset here; empty when they can."""
    if shutil.which("ss") is None:
        return "resetting a connection needs ss: apt install iproute2"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        accepted, _ = listener.accept()
        reset(listener.getsockname()[1])
        client.settimeout(1.0)
        try:
            client.recv(1)
        except TimeoutError:
            return "resetting a connection needs root and CONFIG_INET_DIAG_DESTROY"
        except OSError:
            return ""
        finally:
            accepted.close()
    return "the connection was closed, and not reset"


def reset(port: int, own_port: int = 0) -> None:
    """Both ends of all connections to a listening port, or of the one that begins at ``own_port``."""
    which = ["dport", "=", f":{port}"] + (["sport", "=", f":{own_port}"] if own_port else [])
    subprocess.run(["ss", "-t", "-K", *which], capture_output=True, timeout=30, check=False)


def listening_port(pid: int) -> int:
    """Of a server."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(fd.readlink().name)
        except OSError:
            continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                return int(words[1].rsplit(":", 1)[1], 16)
    raise AssertionError(f"process {pid} listens nowhere")


def server_ports(job: Cluster) -> list[int]:
    """Where the servers listen."""
    return [listening_port(server.pid) for server in job.servers]


def data_connections(ports: list[int]) -> list[tuple[int, int]]:
    """(port of a server, port of a worker) of each data connection there is now."""
    found = []
    for port in ports:
        said = subprocess.run(
            ["ss", "-tnH", "state", "established", "dport", "=", f":{port}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        for line in said.stdout.splitlines():
            found.append((port, int(line.split()[2].rsplit(":", 1)[1])))
    return found
