"""Which processes of a job run on which hosts of a lab. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from byteps.launcher.spec import ProcessSpec
from byteps.tools.lab.plan import Host

__all__ = ["SCHEDULER", "SCHEDULER_PORT", "Layout", "placed"]

SCHEDULER, SCHEDULER_PORT = "scheduler", 9000


@dataclass(frozen=True)
class Layout:
    """Worker machines, the first ``beside`` of them with a server too, and ``extra`` ones with only that.

    >>> Layout(2, 1, 1).server_hosts
    ['w0', 's0']
    """

    workers: int
    beside: int
    extra: int

    @property
    def worker_hosts(self) -> list[str]:
        return [f"w{index}" for index in range(self.workers)]

    @property
    def server_hosts(self) -> list[str]:
        return [*self.worker_hosts[: self.beside], *(f"s{index}" for index in range(self.extra))]

    @property
    def hosts(self) -> list[Host]:
        """All hosts. The scheduler has one of its own, whose link has no limit."""
        names = dict.fromkeys([*self.worker_hosts, *self.server_hosts])
        return [Host(SCHEDULER, 0), *map(Host, names)]

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.beside} servers beside them, {self.extra} on their own"


def placed(
    processes: Sequence[ProcessSpec],
    layout: Layout,
    address: Callable[[str], str],
    inside: Callable[[str], Sequence[str]],
    speeds: Mapping[str, str] = MappingProxyType({}),
) -> list[ProcessSpec]:
    """The processes of a job of this machine on the hosts of a lab; ``speeds`` of their links, if told."""
    servers = iter(layout.server_hosts)
    found = []
    for spec in processes:
        worker = int(spec.env.get("DMLC_WORKER_ID", "0"))
        host = {"scheduler": lambda: SCHEDULER, "server": lambda: next(servers)}.get(
            spec.role, lambda worker=worker: layout.worker_hosts[worker]
        )()
        env = {name: value for name, value in spec.env.items() if name != "BYTEPS_LISTEN_FD"}
        env |= {
            "DMLC_PS_ROOT_URI": address(SCHEDULER),
            "DMLC_PS_ROOT_PORT": str(SCHEDULER_PORT),
            "DMLC_INTERFACE": "eth0",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        if host in speeds:
            env["BYTEPS_LINK_SPEED"] = speeds[host]
        if "MASTER_ADDR" in env:
            env["MASTER_ADDR"] = address(layout.worker_hosts[0])
        found.append(replace(spec, argv=(*inside(host), *spec.argv), env=env, fds=()))
    return found
