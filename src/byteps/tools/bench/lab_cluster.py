"""A job in a lab, with every peer ready: worker machines, servers beside them, server machines."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence

from byteps.tools.bench.members import Message
from byteps.tools.bench.series import Sample
from byteps.tools.bench.team import STARTUP_TIMEOUT_S, WORKER_MODULE, Team
from byteps.tools.lab import USUAL, Lab, Losses, Traffic, Wire
from byteps.tools.lab.layout import SCHEDULER, SCHEDULER_PORT, Layout

__all__ = ["LabCluster", "job_variables"]


def job_variables(layout: Layout, scheduler: str) -> dict[str, str]:
    """Who is in the job, and how they find each other; nothing that makes it faster or slower."""
    found = {
        "DMLC_NUM_WORKER": str(layout.workers),
        "DMLC_NUM_SERVER": str(len(layout.server_hosts)),
        "DMLC_PS_ROOT_URI": scheduler,
        "DMLC_PS_ROOT_PORT": str(SCHEDULER_PORT),
        "DMLC_INTERFACE": "eth0",
        "BYTEPS_JOB_ID": f"lab-{secrets.token_hex(4)}",
        "BYTEPS_JOB_SECRET": secrets.token_hex(16),
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    if layout.workers == 1:  # it would need no servers
        found["BYTEPS_FORCE_DISTRIBUTED"] = "1"
    return found


class LabCluster(Team):
    """The processes of one layout on links of one speed. The scheduler's link has no limit.

    Only variables that say who is in the job are set: what is measured is what a user gets. A job that is
    stuck ends all the same, since whoever asks its members waits for a bounded time, and then ends them.
    """

    def __init__(
        self,
        layout: Layout,
        rate_mbit: float,
        peers: Sequence[str],
        settings: Mapping[str, str] | None = None,
        module: str = WORKER_MODULE,
        wire: Wire = USUAL,
    ) -> None:
        super().__init__(layout.workers, peers)
        self.layout = layout
        self.lab = Lab(layout.hosts, rate_mbit, wire)
        self._settings = dict(settings or {})
        self._module = module

    def _start(self) -> None:
        self.lab.__enter__()
        job = job_variables(self.layout, self.lab.address(SCHEDULER))
        common = {**os.environ, **job, "OMP_NUM_THREADS": "1", **self._settings}
        if "byteps" in self.peers:
            self._member("scheduler", SCHEDULER, "scheduler", common)
            for index, host in enumerate(self.layout.server_hosts):
                self._member(f"server {index}", host, "server", common)
        for rank, host in enumerate(self.layout.worker_hosts):
            variables = {**common, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": str(rank)}
            self.members.start(self.worker_names[rank], self._module, variables, prefix=self.lab.inside(host))
        setups = {name: self.setup_request(rank) for rank, name in enumerate(self.worker_names)}
        self.members.ask(setups, STARTUP_TIMEOUT_S)

    def _member(self, name: str, host: str, role: str, env: Mapping[str, str]) -> None:
        variables = {**env, "DMLC_ROLE": role}
        self.members.start(name, f"byteps.{role}", variables, talks=False, prefix=self.lab.inside(host))

    def __exit__(self, *error: object) -> None:
        super().__exit__(None, None, None)
        self.lab.close()

    def measure(self, peer: str, nbytes: int, inner: int) -> Sample:
        """One sample of one tensor: the mean of ``inner`` rounds in a row, after one that is not timed."""
        request: Message = {"do": "measure", "peer": peer, "nbytes": nbytes, "inner": inner}
        return self.sample(peer, request, {}, inner)

    def traffic(self) -> dict[str, Traffic]:
        return self.lab.traffic()

    def losses(self) -> Losses:
        return self.lab.losses()

    def server_pids(self, peer: str) -> list[int]:
        if peer != "byteps":
            return []
        return [self.members.pid(f"server {index}") for index in range(len(self.layout.server_hosts))]
