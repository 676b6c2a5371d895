"""A cluster on this machine with every peer ready: scheduler, servers, workers, summing processes."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from byteps.tools.bench.bound import Shape, Wires
from byteps.tools.bench.machine import cpu_seconds
from byteps.tools.bench.members import Members, Message

__all__ = ["Cluster", "Sample", "environment"]

STARTUP_TIMEOUT_S = 90.0
STEP_TIMEOUT_S = 120.0
LEAVE_TIMEOUT_S = 30.0


def environment(role: str, workers: int, servers: int, port: int, job_id: str) -> dict[str, str]:
    """The variables of one process. What the user has set otherwise stays, so that settings can be tried."""
    return {
        **os.environ,
        "DMLC_ROLE": role,
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_HOST": "127.0.0.1",
        "BYTEPS_JOB_ID": job_id,
        "BYTEPS_FORCE_DISTRIBUTED": "1",
        "BYTEPS_ENABLE_IPC": "0",  # the question is about TCP
        "BYTEPS_CONNECT_TIMEOUT_S": "60",
        "BYTEPS_OP_TIMEOUT_S": "60",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


@dataclass(frozen=True)
class Sample:
    """One round: how long it took, and the CPU time of all workers and servers together."""

    time_s: float
    cpu_s: float


class Cluster:
    """Processes for one number of workers and servers; as a context manager it leaves nothing behind."""

    def __init__(self, workers: int, servers: int, peers: Sequence[str], streams: int) -> None:
        self.workers = workers
        self.servers = servers
        # Among one worker Gloo has nothing to do, and a number for that would mislead.
        self.peers = [peer for peer in peers if peer != "gloo" or workers > 1]
        self._streams = streams
        self._worker_names = [f"worker {rank}" for rank in range(workers)]
        self._summers = [f"summer {index}" for index in range(servers)] if "bound" in peers else []
        self._folder = Path(tempfile.mkdtemp(prefix="bps-bench-"))
        self.members = Members(self._folder)

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.members.__exit__(kind, error, trace)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        job_id = f"bench-{secrets.token_hex(4)}"
        wires = Wires(self.workers, self.servers, self._streams)
        try:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
                env = {
                    role: environment(role, self.workers, self.servers, port, job_id)
                    for role in ("scheduler", "server", "worker")
                }
                if "byteps" in self.peers:
                    fd = listener.fileno()
                    env["scheduler"]["BYTEPS_LISTEN_FD"] = str(fd)
                    self.members.start("scheduler", "byteps.scheduler", env["scheduler"], [fd], talks=False)
            if "byteps" in self.peers:
                for index in range(self.servers):
                    self.members.start(f"server {index}", "byteps.server", env["server"], talks=False)
            for rank, name in enumerate(self._worker_names):
                fds = [fd for server in wires.worker_fds(rank) for fd in server]
                variables = {**env["worker"], "DMLC_WORKER_ID": str(rank)}
                self.members.start(name, "byteps.tools.bench.push_pull_worker", variables, fds)
            for index, name in enumerate(self._summers):
                fds = [fd for stream in wires.server_fds(index) for fd in stream]
                self.members.start(name, "byteps.tools.bench.bound_server", dict(os.environ), fds)
            setups = self._setups(wires)
        finally:
            wires.close()
        self.members.ask(setups, STARTUP_TIMEOUT_S)

    def _setups(self, wires: Wires) -> dict[str, Message]:
        setups: dict[str, Message] = {
            name: {
                "do": "setup",
                "rank": rank,
                "workers": self.workers,
                "peers": self.peers,
                "store": str(self._folder / "gloo"),
                "fds": wires.worker_fds(rank),
            }
            for rank, name in enumerate(self._worker_names)
        }
        for index, name in enumerate(self._summers):
            setups[name] = {"do": "setup", "fds": wires.server_fds(index), "index": index}
        return setups

    def measure(self, peer: str, nbytes: int, inner: int, shape: Shape | None = None) -> Sample:
        """One sample of one tensor: the mean of ``inner`` rounds in a row, after one that is not timed."""
        request: Message = {"do": "measure", "peer": peer, "nbytes": nbytes, "inner": inner}
        if peer != "bound":
            return self._sample(peer, request, {}, inner)
        assert shape is not None
        request |= asdict(shape)
        sums = request | {"do": "sum", "rounds": 1 + inner, "servers": self.servers}
        return self._sample(peer, request, {name: sums for name in self._summers}, inner)

    def measure_many(self, peer: str, name: str, sizes: Sequence[int]) -> Sample:
        """One sample of a set of tensors: one round of all of them, after one that is not timed."""
        return self._sample(peer, {"do": "measure-many", "peer": peer, "set": name, "sizes": sizes}, {}, 1)

    def repeat_many(self, peer: str, name: str, sizes: Sequence[int], rounds: int, timeout_s: float) -> None:
        """Rounds of a set of tensors, without a clock."""
        request = {"do": "repeat-many", "peer": peer, "set": name, "sizes": sizes, "rounds": rounds}
        self.members.ask({name: request for name in self._worker_names}, timeout_s)

    def _sample(self, peer: str, request: Message, others: dict[str, Message], inner: int) -> Sample:
        pids = self.server_pids(peer)
        before = sum(map(cpu_seconds, pids))
        answers = self.members.ask(others | {name: request for name in self._worker_names}, STEP_TIMEOUT_S)
        on_servers = (sum(map(cpu_seconds, pids)) - before) / (1 + inner)
        workers = [answers[name] for name in self._worker_names]
        span_ns = max(each["end_ns"] for each in workers) - min(each["start_ns"] for each in workers)
        on_workers = sum(each["cpu_ns"] for each in workers) / 1e9 / inner
        return Sample(span_ns / 1e9 / inner, on_workers + on_servers)

    def server_pids(self, peer: str) -> list[int]:
        """The processes that sum for a peer besides its workers."""
        if peer == "bound":
            return [self.members.pid(name) for name in self._summers]
        if peer == "byteps":
            return [self.members.pid(f"server {index}") for index in range(self.servers)]
        return []

    def leave(self) -> None:
        """End in order: workers leave, servers and scheduler follow. Raises when one does not."""
        self.members.leave(
            {name: {"do": "leave"} for name in [*self._worker_names, *self._summers]}, LEAVE_TIMEOUT_S
        )
