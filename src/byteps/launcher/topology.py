"""What this machine is made of: physical cores with their threads, NUMA nodes, and what we may use of them.

``Topology`` is data; ``read`` fills it from sysfs, this process's affinity and its control groups (version 1
and 2). Every folder is an argument, so that a test can describe a machine it does not have. What cannot be
read is taken to be simple: a core per processor, one node, no limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Core", "Topology", "cpu_list", "cpu_text", "read"]


@dataclass(frozen=True)
class Core:
    """A physical core: those of its threads that we may use, and its node."""

    threads: tuple[int, ...]
    node: int = 0


@dataclass(frozen=True)
class Topology:
    """All that a binding depends on."""

    cores: tuple[Core, ...]  # by node, then by their first thread
    memory_nodes: frozenset[int] = frozenset((0,))  # nodes with memory that we may use
    quota_cpus: float | None = None  # processor time per second that the control group allows; None: no limit

    @property
    def cpus(self) -> tuple[int, ...]:
        """Every processor that we may use."""
        return tuple(sorted(thread for core in self.cores for thread in core.threads))

    @property
    def nodes(self) -> dict[int, list[Core]]:
        """The cores of every node that has some."""
        found: dict[int, list[Core]] = {}
        for core in self.cores:
            found.setdefault(core.node, []).append(core)
        return found


def read(
    system: Path = Path("/sys/devices/system"),
    affinity: Iterable[int] | None = None,
    cgroups: Path = Path("/sys/fs/cgroup"),
    membership: Path = Path("/proc/self/cgroup"),
) -> Topology:
    """The machine as this process may use it. Never fails."""
    allowed = set(os.sched_getaffinity(0) if affinity is None else affinity)
    online = cpu_list(_text(system / "cpu/online"))
    allowed &= set(online) or allowed
    node_of = _nodes(system / "node")
    threads = {cpu: _siblings(system / f"cpu/cpu{cpu}/topology") or (cpu,) for cpu in sorted(allowed)}
    cores: dict[tuple[int, ...], Core] = {}
    for cpu, siblings in threads.items():
        usable = tuple(each for each in siblings if each in allowed)
        if cpu in usable:
            cores.setdefault(usable, Core(usable, node_of.get(usable[0], 0)))
        else:  # sysfs contradicts itself
            cores[cpu,] = Core((cpu,), node_of.get(cpu, 0))
    memory = cpu_list(_text(system / "node/has_memory")) or sorted(set(node_of.values())) or [0]
    ordered = sorted(cores.values(), key=lambda core: (core.node, core.threads[0]))
    return Topology(tuple(ordered), frozenset(memory), _quota_cpus(cgroups, membership))


def cpu_list(text: str) -> list[int]:
    """The numbers in a list of the kernel; nothing for what is no list.

    >>> cpu_list("0-2,8\\n")
    [0, 1, 2, 8]
    """
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None:
            return []
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def cpu_text(cpus: Iterable[int]) -> str:
    """The other way round.

    >>> cpu_text([8, 0, 1, 2])
    '0-2,8'
    """
    spans: list[list[int]] = []
    for cpu in sorted(cpus):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)


def _nodes(folder: Path) -> dict[int, int]:
    """The node of every processor."""
    found = {}
    for node in folder.glob("node[0-9]*"):
        for cpu in cpu_list(_text(node / "cpulist")):
            found[cpu] = int(node.name[4:])
    return found


def _siblings(folder: Path) -> tuple[int, ...]:
    # The second name is the older one.
    text = _text(folder / "core_cpus_list") or _text(folder / "thread_siblings_list")
    return tuple(sorted(cpu_list(text)))


def _quota_cpus(root: Path, membership: Path) -> float | None:
    """The tightest limit on processor time of this process's control group and of all groups around it."""
    limits = []
    for line in _text(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:  # version 2, alone or beside version 1
            bases, limit_of = [root, root / "unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            bases, limit_of = [root / "cpu", root / "cpu,cpuacct"], _quota_v1
        else:
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for base in bases:
            for depth in range(len(parts) + 1):
                limits.append(limit_of(base.joinpath(*parts[:depth])))
    return min((limit for limit in limits if limit is not None), default=None)


def _quota_v2(group: Path) -> float | None:
    quota, _, period = _text(group / "cpu.max").strip().partition(" ")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _quota_v1(group: Path) -> float | None:
    quota, period = _text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
