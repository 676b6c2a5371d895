"""Ranks of one machine with every peer ready: what ``bpslaunch --nproc N`` would start, as members."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

from byteps.tools.bench.memory_bound import make_memory
from byteps.tools.bench.series import Sample
from byteps.tools.bench.team import STARTUP_TIMEOUT_S, WORKER_MODULE, Team

__all__ = ["LocalRanks", "environment"]


def environment(rank: int, ranks: int, port: int, job_id: str, listen_fd: int) -> dict[str, str]:
    """The variables of one rank. What the user has set otherwise stays, so that settings can be tried."""
    mine = {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "0",
        "DMLC_WORKER_ID": "0",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "BYTEPS_LOCAL_RANK": str(rank),
        "BYTEPS_LOCAL_SIZE": str(ranks),
        "BYTEPS_FORCE_DISTRIBUTED": "0",  # the question is about a job without servers
        "BYTEPS_JOB_ID": job_id,
        "BYTEPS_CONNECT_TIMEOUT_S": "60",
        "BYTEPS_OP_TIMEOUT_S": "60",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    if rank == 0:  # it starts the scheduler
        mine["BYTEPS_LISTEN_FD"] = str(listen_fd)
    return {**os.environ, **mine}


class LocalRanks(Team):
    """Processes for one number of ranks; ``largest_bytes`` is the largest tensor of the memory bound."""

    def __init__(self, ranks: int, peers: Sequence[str], largest_bytes: int) -> None:
        super().__init__(ranks, peers)
        self._largest_bytes = largest_bytes

    def _start(self) -> None:
        job_id = f"bench-{secrets.token_hex(4)}"
        memory = make_memory(self.workers, self._largest_bytes)
        try:
            # Bound, so that nobody takes the port, but not listening: until rank 0 has its scheduler, the
            # others are refused and try again.
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                port, listen_fd = listener.getsockname()[1], listener.fileno()
                for rank, name in enumerate(self.worker_names):
                    variables = environment(rank, self.workers, port, job_id, listen_fd)
                    fds = [memory, listen_fd] if rank == 0 else [memory]
                    self.members.start(name, WORKER_MODULE, variables, fds)
        finally:
            os.close(memory)
        shared = {"fd": memory, "capacity_bytes": self._largest_bytes}
        self.members.ask(
            {
                name: {**self.setup_request(rank), "shared": shared}
                for rank, name in enumerate(self.worker_names)
            },
            STARTUP_TIMEOUT_S,
        )

    def measure(self, peer: str, nbytes: int, inner: int) -> Sample:
        """One sample of one tensor: the mean of ``inner`` rounds in a row, after one that is not timed."""
        request = {"do": "measure", "peer": peer, "nbytes": nbytes, "inner": inner}
        return self.sample(peer, request, {}, inner)
