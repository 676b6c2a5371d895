"""A cluster on this machine with every peer ready: scheduler, servers, workers, summing processes."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from byteps.tools.bench.bound import Shape, Wires
from byteps.tools.bench.members import Members, Message

__all__ = ["Cluster", "environment"]

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

    def ask_workers(self, request: Message, timeout_s: float = STEP_TIMEOUT_S) -> float:
        """Let all workers do the same; the seconds from the first start to the last end, if they timed it."""
        return self._span({name: request for name in self._worker_names}, timeout_s)

    def measure(self, peer: str, nbytes: int, inner: int, shape: Shape | None = None) -> float:
        """One sample: the time of one round in seconds, as the mean of ``inner`` rounds in a row."""
        request: Message = {"do": "measure", "peer": peer, "nbytes": nbytes, "inner": inner}
        requests = {}
        if peer == "bound":
            assert shape is not None
            request |= asdict(shape)
            sums = request | {"do": "sum", "rounds": 1 + inner, "servers": self.servers}
            requests = {name: sums for name in self._summers}
        requests |= {name: request for name in self._worker_names}
        return self._span(requests, STEP_TIMEOUT_S) / inner

    def _span(self, requests: dict[str, Message], timeout_s: float) -> float:
        answers = self.members.ask(requests, timeout_s)
        starts = [answer["start_ns"] for answer in answers.values() if "start_ns" in answer]
        ends = [answer["end_ns"] for answer in answers.values() if "end_ns" in answer]
        return (max(ends) - min(starts)) / 1e9 if starts else 0.0

    def server_pids(self) -> list[int]:
        return [self.members.pid(f"server {index}") for index in range(self.servers)]

    def leave(self) -> None:
        """End in order: workers leave, servers and scheduler follow. Raises when one does not."""
        self.members.leave(
            {name: {"do": "leave"} for name in [*self._worker_names, *self._summers]}, LEAVE_TIMEOUT_S
        )
