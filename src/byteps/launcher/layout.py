"""Which host of a job runs what, and where its members find each other. Pure.

    workers    -H, one worker machine for every host
    servers    --server-hosts; else --servers M dealt over the worker hosts; else one on each of them, if
               there are several
    scheduler  --scheduler-ip; else on the host of worker 0

Members are told addresses at which the launcher has reached their hosts: names of an ssh configuration mean
nothing to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from byteps.control.address import is_loopback
from byteps.errors import ConfigError
from byteps.launcher import frames
from byteps.launcher.hosts import Host, merged
from byteps.launcher.plan import plan
from byteps.launcher.spec import LOOPBACK, Facts, Options, Plan

__all__ = ["Layout", "facts_from", "lay_out", "plan_hosts"]


@dataclass(frozen=True)
class Layout:
    """Hosts and how many processes of a kind each has."""

    workers: tuple[tuple[Host, int], ...]
    servers: tuple[tuple[Host, int], ...]
    scheduler: Host
    scheduler_ip: str = ""  # as told

    @property
    def hosts(self) -> list[Host]:
        """Every host once."""
        everybody = [*(host for host, _ in (*self.workers, *self.servers)), self.scheduler]
        return list({host.key: host for host in everybody}.values())


def lay_out(
    workers: Sequence[Host],
    server_hosts: Sequence[Host],
    servers: int | None,
    nproc: int,
    scheduler_ip: str = "",
) -> Layout:
    """Deal roles over hosts.

    >>> layout = lay_out([Host("a", 2), Host("b", 2)], [], None, 1)
    >>> [(host.name, count) for host, count in layout.servers], layout.scheduler.name
    ([('a', 1), ('b', 1)], 'a')
    """
    team = merged(workers, nproc)
    if server_hosts and servers is not None:
        raise ConfigError("--servers and --server-hosts are both given; keep one")
    if server_hosts:
        crew = merged(server_hosts, 1)
    else:
        count = (len(team) if len(team) > 1 else 0) if servers is None else servers
        crew = merged([replace(team[k % len(team)][0], slots=1) for k in range(count)], 1)
    scheduler = team[0][0]
    if scheduler_ip:
        known = [host for host, _ in (*team, *crew) if host.name == scheduler_ip]
        scheduler = known[0] if known else replace(team[0][0], name=scheduler_ip, slots=None)
    return Layout(tuple(team), tuple(crew), scheduler, scheduler_ip)


def plan_hosts(layout: Layout, command: Sequence[str], environ: Mapping[str, str], facts: Facts) -> Plan:
    """The plan of a job on one machine, with a host for every process."""
    ranks = tuple(count for _, count in layout.workers)
    servers = sum(count for _, count in layout.servers)
    made = plan(Options(tuple(command), len(ranks), servers, ranks), environ, facts)
    places = {
        "scheduler": [layout.scheduler],
        "server": [host for host, count in layout.servers for _ in range(count)],
        "worker": [host for host, count in layout.workers for _ in range(count)],
    }
    free = {role: iter(hosts) for role, hosts in places.items()}
    # A host may stand in both lists; what one says of its link holds for all that runs there.
    speeds = {host.key: host.speed for host, _ in (*layout.workers, *layout.servers) if host.speed}
    processes = []
    for spec in made.processes:
        host = next(free[spec.role])
        label = f"{spec.label}@{host.name}"
        drop = spec.drop - {"DMLC_INTERFACE"}  # hosts that reach each other through one of several networks
        env = {**spec.env, "BYTEPS_LINK_SPEED": speeds[host.key]} if host.key in speeds else spec.env
        processes.append(replace(spec, label=label, host=host.key, stdin=False, drop=drop, env=env))
    return replace(made, processes=tuple(processes))


def facts_from(layout: Layout, hellos: Mapping[str, frames.Hello], facts: Facts) -> Facts:
    """``facts`` with the addresses and ports that the agents have told; ``hellos`` by ``Host.key``."""
    first = hellos[layout.workers[0][0].key]
    root = hellos.get(layout.scheduler.key, first)  # no scheduler: rank 0 starts its own
    if len(hellos) == 1:  # nobody outside has to reach anything
        return replace(facts, root_port=str(root.root_port), listen_fd=frames.LISTEN_FD,
                       master_port=str(first.master_port))  # fmt: skip
    everybody = list(hellos.values())
    return replace(
        facts,
        root_port=str(root.root_port),
        root_uri=layout.scheduler_ip or _address(root, everybody),
        listen_fd=frames.LISTEN_FD,
        master_port=str(first.master_port),
        master_addr=_address(first, everybody),
    )


def _address(own: frames.Hello, everybody: Sequence[frames.Hello]) -> str:
    """Where the others reach a host: as we did, or as they reached us if it is ours."""
    if own.address and not is_loopback(own.address):
        return own.address
    outside = [each.caller for each in everybody if each.caller and not is_loopback(each.caller)]
    return outside[0] if outside else (own.address or LOOPBACK)
