"""A job of MXNet's KVStore (``dist_sync``) on the hosts of a lab that runs another job, too."""

from __future__ import annotations

import os
from pathlib import Path

from common import environment

from byteps.errors import BytePSError
from byteps.tools.bench.members import Message
from byteps.tools.bench.team import STARTUP_TIMEOUT_S, STEP_TIMEOUT_S, Team
from byteps.tools.lab import Lab
from byteps.tools.lab.layout import SCHEDULER, SCHEDULER_PORT, Layout

__all__ = ["KVStore"]

PORT = SCHEDULER_PORT + 100  # our own scheduler has the other one
# To import MXNet as a scheduler or a server is to be one, until the workers have gone.
SERVER_MODULE, WORKER_MODULE = "mxnet.kvstore_server", "kvstore_worker"


class KVStore(Team):
    """Scheduler, servers and workers of MXNet, one of each on every host that has one of ours."""

    def __init__(self, lab: Lab, layout: Layout, python: Path, tiny: bool) -> None:
        super().__init__(layout.workers, ["kvstore"])
        self._lab, self._layout, self._python, self._tiny = lab, layout, str(python), tiny

    def _start(self) -> None:
        env = {
            **os.environ,
            **environment(),
            "DMLC_PS_ROOT_URI": self._lab.address(SCHEDULER),
            "DMLC_PS_ROOT_PORT": str(PORT),
            "DMLC_NUM_WORKER": str(self.workers),
            "DMLC_NUM_SERVER": str(len(self._layout.server_hosts)),
            "DMLC_INTERFACE": "eth0",
            "OMP_NUM_THREADS": "1",
        }
        self._member("scheduler", SCHEDULER, env)
        for index, host in enumerate(self._layout.server_hosts):
            self._member(f"server {index}", host, env)
        for name, host in zip(self.worker_names, self._layout.worker_hosts, strict=True):
            self.members.start(
                name,
                WORKER_MODULE,
                {**env, "DMLC_ROLE": "worker"},
                prefix=self._lab.inside(host),
                python=self._python,
            )
        request: Message = {"do": "setup", "tiny": self._tiny}
        self.members.ask(dict.fromkeys(self.worker_names, request), STARTUP_TIMEOUT_S)

    def _member(self, name: str, host: str, env: dict[str, str]) -> None:
        self.members.start(
            name,
            SERVER_MODULE,
            {**env, "DMLC_ROLE": name.split()[0]},
            talks=False,
            prefix=self._lab.inside(host),
            python=self._python,
        )

    def server_pids(self, peer: str) -> list[int]:
        return [self.members.pid(f"server {index}") for index in range(len(self._layout.server_hosts))]

    def check(self) -> None:
        """All workers have the same parameters, and they are not what they began with."""
        request: Message = {"do": "parameters"}
        answers = self.members.ask(dict.fromkeys(self.worker_names, request), STEP_TIMEOUT_S)
        found = {str(answers[name]["sums"]) for name in self.worker_names}
        if len(found) != 1 or not answers[self.worker_names[0]]["changed"]:
            raise BytePSError(f"KVStore: workers ended with different or unchanged parameters: {found}")
