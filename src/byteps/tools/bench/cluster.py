"""A cluster on this machine with every peer ready: scheduler, servers, workers, summing processes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from byteps.tools.bench.bound import Shape, Wires
from byteps.tools.bench.members import Message
from byteps.tools.bench.series import Sample
from byteps.tools.bench.team import STARTUP_TIMEOUT_S, WORKER_MODULE, Team

__all__ = ["Cluster", "environment"]


def environment(
    role: str, workers: int, servers: int, port: int, job_id: str, more: Mapping[str, str]
) -> dict[str, str]:
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
        **more,
    }


class Cluster(Team):
    """Processes for one number of workers and servers."""

    def __init__(
        self,
        workers: int,
        servers: int,
        peers: Sequence[str],
        streams: int,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """``more``: variables of all members."""
        super().__init__(workers, peers)
        self._more = more or {}
        self.servers = servers
        self._streams = streams
        self._summers = [f"summer {index}" for index in range(servers)] if "bound" in peers else []

    def _start(self) -> None:
        job_id = f"bench-{secrets.token_hex(4)}"
        wires = Wires(self.workers, self.servers, self._streams)
        try:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
                env = {
                    role: environment(role, self.workers, self.servers, port, job_id, self._more)
                    for role in ("scheduler", "server", "worker")
                }
                if "byteps" in self.peers:
                    fd = listener.fileno()
                    env["scheduler"]["BYTEPS_LISTEN_FD"] = str(fd)
                    self.members.start("scheduler", "byteps.scheduler", env["scheduler"], [fd], talks=False)
            if "byteps" in self.peers:
                for index in range(self.servers):
                    self.members.start(f"server {index}", "byteps.server", env["server"], talks=False)
            for rank, name in enumerate(self.worker_names):
                fds = [fd for server in wires.worker_fds(rank) for fd in server]
                variables = {**env["worker"], "DMLC_WORKER_ID": str(rank)}
                self.members.start(name, WORKER_MODULE, variables, fds)
            for index, name in enumerate(self._summers):
                fds = [fd for stream in wires.server_fds(index) for fd in stream]
                self.members.start(name, "byteps.tools.bench.bound_server", dict(os.environ), fds)
            setups = self._setups(wires)
        finally:
            wires.close()
        self.members.ask(setups, STARTUP_TIMEOUT_S)

    def _setups(self, wires: Wires) -> dict[str, Message]:
        setups: dict[str, Message] = {
            name: {**self.setup_request(rank), "fds": wires.worker_fds(rank)}
            for rank, name in enumerate(self.worker_names)
        }
        for index, name in enumerate(self._summers):
            setups[name] = {"do": "setup", "fds": wires.server_fds(index), "index": index}
        return setups

    def measure(self, peer: str, nbytes: int, inner: int, shape: Shape | None = None) -> Sample:
        """One sample of one tensor: the mean of ``inner`` rounds in a row, after one that is not timed."""
        request: Message = {"do": "measure", "peer": peer, "nbytes": nbytes, "inner": inner}
        if peer != "bound":
            return self.sample(peer, request, {}, inner)
        assert shape is not None
        request |= asdict(shape)
        sums = request | {"do": "sum", "rounds": 1 + inner, "servers": self.servers}
        return self.sample(peer, request, {name: sums for name in self._summers}, inner)

    def repeat_many(
        self, peer: str, name: str, tensors: Mapping[str, Sequence[int]], rounds: int, timeout_s: float
    ) -> None:
        """Rounds of a set of tensors, without a clock."""
        request = {"do": "repeat-many", "peer": peer, "set": name, "tensors": tensors, "rounds": rounds}
        self.members.ask(dict.fromkeys(self.worker_names, request), timeout_s)

    def server_pids(self, peer: str) -> list[int]:
        if peer == "bound":
            return [self.members.pid(name) for name in self._summers]
        if peer == "byteps":
            return [self.members.pid(f"server {index}") for index in range(self.servers)]
        return []

    def talking(self) -> list[str]:
        return [*self.worker_names, *self._summers]
