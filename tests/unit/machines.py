"""Machines as the kernel describes them in sysfs, recorded as data, and written into a folder for a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from byteps.launcher.topology import Topology, cpu_list, read


@dataclass(frozen=True)
class Machine:
    """``nodes``: processors of each node; ``siblings``: threads that share a core; in lists of the kernel."""

    nodes: dict[int, str]
    siblings: tuple[str, ...] = ()  # of the others: one thread per core
    offline: str = ""
    has_memory: str = ""  # "": all nodes
    cpus: list[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "cpus", sorted(cpu for text in self.nodes.values() for cpu in cpu_list(text))
        )

    def write(self, folder: Path) -> Path:
        """The files below /sys/devices/system."""
        offline = cpu_list(self.offline)
        online = [cpu for cpu in self.cpus if cpu not in offline]
        _put(folder / "cpu/online", ",".join(map(str, online)))
        shared = {cpu: cpu_list(text) for text in self.siblings for cpu in cpu_list(text)}
        for cpu in online:  # an offline processor has no topology
            alive = [each for each in shared.get(cpu, [cpu]) if each in online]
            _put(folder / f"cpu/cpu{cpu}/topology/core_cpus_list", ",".join(map(str, alive)))
        for node, text in self.nodes.items():
            alive = [cpu for cpu in cpu_list(text) if cpu in online]
            _put(folder / f"node/node{node}/cpulist", ",".join(map(str, alive)))
        memory = self.has_memory or ",".join(map(str, self.nodes))
        _put(folder / "node/has_memory", memory)
        return folder

    def topology(self, folder: Path, affinity: str | None = None, quota: str = "") -> Topology:
        """What is read of it; ``quota``: cpu.max of this process's control group."""
        self.write(folder)
        _put(folder / "cgroup", "0::/job/step\n")
        _put(folder / "cgroups/cgroup.controllers", "cpu memory")
        if quota:
            _put(folder / "cgroups/job/cpu.max", quota)
            _put(folder / "cgroups/job/step/cpu.max", "max 100000")
        allowed = self.cpus if affinity is None else cpu_list(affinity)
        return read(folder, allowed, folder / "cgroups", folder / "cgroup")


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def _pairs(first: int, count: int, offset: int) -> tuple[str, ...]:
    return tuple(f"{cpu},{cpu + offset}" for cpu in range(first, first + count))


TWO_CORES = Machine({0: "0-1"})
LAPTOP = Machine({0: "0-7"}, _pairs(0, 4, 4))  # 4 cores of 2 threads
HYBRID = Machine({0: "0-11"}, ("0-1", "2-3", "4-5", "6-7"))  # 4 cores of 2 threads, 4 of 1
XEON = Machine({0: "0-19,40-59", 1: "20-39,60-79"}, _pairs(0, 40, 40))  # 2 sockets of 20 cores
EVEN_ODD = Machine({0: "0,2,4,6,8,10,12,14", 1: "1,3,5,7,9,11,13,15"})  # as some vendors number them
EPYC = Machine(  # 1 socket in 4 nodes of 16 cores
    {node: f"{16 * node}-{16 * node + 15},{64 + 16 * node}-{64 + 16 * node + 15}" for node in range(4)},
    _pairs(0, 64, 64),
)
EPYC_PAIR = Machine(  # 2 sockets in 8 nodes of 16 cores
    {node: f"{16 * node}-{16 * node + 15},{128 + 16 * node}-{128 + 16 * node + 15}" for node in range(8)},
    _pairs(0, 128, 128),
)
EIGHT_SMALL = Machine({node: f"{4 * node}-{4 * node + 3}" for node in range(8)})  # no hyper-threads
HALF_OFF = Machine(LAPTOP.nodes, LAPTOP.siblings, offline="3,6")
MEMORY_LESS = Machine({0: "0-7", 1: "8-15", 2: ""}, has_memory="0,2")  # node 2: memory alone

ALL = {
    "two cores": TWO_CORES,
    "laptop": LAPTOP,
    "hybrid": HYBRID,
    "xeon": XEON,
    "even and odd": EVEN_ODD,
    "epyc": EPYC,
    "epyc pair": EPYC_PAIR,
    "eight small": EIGHT_SMALL,
    "half off": HALF_OFF,
    "memory-less": MEMORY_LESS,
}
