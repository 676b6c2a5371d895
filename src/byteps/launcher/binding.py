"""Which cores each rank of this machine gets: pure, from a topology and the settings to a decision.

Decided in this order:

    BYTEPS_VISIBLE_CPU_CORES      as it says
    BYTEPS_NUMA_ON=0              all run everywhere
    one rank here                 it runs everywhere
    a limit on processor time     all run everywhere: the cores belong to others, too
    more ranks than cores         all run everywhere
    quotas                        as they say: each rank in its own node where one has room
    at least 2 cores for a rank   ranks are dealt over the nodes, the cores of a node over its ranks
    fewer, and several nodes      each rank to the cores of its node, shared with the other ranks there
    fewer                         all run everywhere

*Everywhere* is without the cores of BYTEPS_CPU_BLACKLIST, and one thread of a core with
BYTEPS_MULTITHREADED_CPU=0.

Why two: the threads of our core that send, receive and sum inherit the binding. Beside a computing rank on
its only core they wait for it, where the kernel would have given them the other rank's idle one.

Rank 0 is the root rank: beside its own work it starts the scheduler, writes checkpoints and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from byteps.config import Config
from byteps.errors import ConfigError
from byteps.launcher.spec import ProcessSpec
from byteps.launcher.topology import Core, Topology, cpu_text

__all__ = ["Binding", "Place", "apply", "decide"]

MIN_CORES = 2  # of a rank with cores of its own
_OMP = "OMP_NUM_THREADS"
_UNBOUND = "BYTEPS_UNBOUND_CPUS"


@dataclass(frozen=True)
class Place:
    """Where one rank runs: its processors (none: wherever it likes) and the node of its memory."""

    cpus: tuple[int, ...] = ()
    memory_node: int | None = None
    threads: int = 1  # how many threads keep its share of the machine busy


@dataclass(frozen=True)
class Binding:
    """A place for each rank, and why."""

    places: tuple[Place, ...]
    reason: str


def decide(ranks: int, topology: Topology, config: Config) -> Binding:
    """Where ``ranks`` ranks of this machine run. ConfigError when a setting asks for what is not there."""
    if config.visible_cpu_cores:
        return _visible(ranks, topology, config.visible_cpu_cores)
    if not config.numa_on:
        return _together(ranks, topology, topology, "BYTEPS_NUMA_ON=0")
    usable = _usable(topology, config)
    quotas = config.numa_default_quota is not None or config.numa_root_quota is not None
    limit, cores = topology.quota_cpus, len(usable.cores)
    if ranks == 1 and not quotas:
        return _together(ranks, topology, usable, "one rank, which may use all cores")
    if limit is not None and limit < len(topology.cpus):
        why = f"the control group allows the time of {limit:g} of {len(topology.cpus)} processors"
        return _together(ranks, topology, usable, f"{why}, so their cores are shared with others")
    if ranks > cores:
        return _together(ranks, topology, usable, f"{ranks} ranks, {_count(cores, 'core')}")
    if quotas:
        chosen = _by_quota(ranks, usable, config)
        return _bound(chosen, usable, "the quotas that are set")
    if cores < MIN_CORES * ranks:
        if len(usable.nodes) == 1:
            why = f"{ranks} ranks, {_count(cores, 'core')}"
            return _together(ranks, topology, usable, f"{why}; on one each, sending would wait for computing")
        shared = [usable.nodes[node] for node in _deal(ranks, usable.nodes)]
        threads = max(1, cores // ranks)
        bound = _bound(shared, usable, f"the cores of a node, which several of {ranks} ranks share")
        return replace(bound, places=tuple(replace(place, threads=threads) for place in bound.places))
    return _bound(_automatic(ranks, usable), usable, f"{_count(cores, 'core')} dealt over {ranks} ranks")


def apply(
    specs: Sequence[ProcessSpec], config: Config, topology: Topology, inherited: Mapping[str, str]
) -> tuple[list[ProcessSpec], str]:
    """The same processes with their places, and a line that says how they were chosen.

    All workers count, also those that play another machine. Scheduler and servers run wherever they like.
    OMP_NUM_THREADS is the share of a rank, unless it is set: every rank would else start a thread per core.
    """
    workers = [place for place, spec in enumerate(specs) if spec.role == "worker"]
    if not workers:
        return list(specs), ""
    binding = decide(len(workers), topology, config)
    placed = list(specs)
    for index, place in zip(workers, binding.places, strict=True):
        spec = specs[index]
        env = dict(spec.env)
        if (len(workers) > 1 or place.cpus) and not inherited.get(_OMP):
            env[_OMP] = str(place.threads)
        if place.cpus:  # for what rank 0 starts: it serves all ranks
            env[_UNBOUND] = cpu_text(topology.cpus)
        drop = spec.drop | {_UNBOUND}  # of a job that we may run inside of
        placed[index] = replace(spec, env=env, drop=drop, cpus=place.cpus, memory_node=place.memory_node)
    own = len({place.cpus for place in binding.places}) > 1
    verdict = "ranks are bound to cores" if own else "no rank has cores of its own"
    return placed, f"{verdict}: {binding.reason}"


def _usable(topology: Topology, config: Config) -> Topology:
    """Without the blacklist, and one thread of each core if that was asked for."""
    kept = []
    for core in topology.cores:
        threads = tuple(each for each in core.threads if each not in config.cpu_blacklist)
        if threads:
            kept.append(Core(threads if config.multithreaded_cpu else threads[:1], core.node))
    if not kept:
        raise ConfigError(
            f"BYTEPS_CPU_BLACKLIST leaves no core: this process may use {cpu_text(topology.cpus)}, "
            "and all of them are listed; take some out of the list"
        )
    return replace(topology, cores=tuple(kept))


def _together(ranks: int, topology: Topology, usable: Topology, reason: str) -> Binding:
    """No cores of its own for any rank; but what the user has excluded, none of them uses."""
    share = min(float(len(usable.cores)), topology.quota_cpus or float("inf"))
    cpus = usable.cpus if usable.cpus != topology.cpus else ()
    return Binding((Place(cpus, threads=max(1, int(share / ranks))),) * ranks, reason)


def _bound(chosen: Sequence[Sequence[Core]], topology: Topology, reason: str) -> Binding:
    return Binding(tuple(_place(cores, topology) for cores in chosen), reason)


def _place(cores: Sequence[Core], topology: Topology) -> Place:
    nodes = {core.node for core in cores}
    memory = nodes.pop() if len(nodes) == 1 else None
    cpus = tuple(sorted(thread for core in cores for thread in core.threads))
    return Place(cpus, memory if memory in topology.memory_nodes else None, len(cores))


def _visible(ranks: int, topology: Topology, listed: Sequence[Sequence[int]]) -> Binding:
    name = "BYTEPS_VISIBLE_CPU_CORES"
    if len(listed) < ranks:
        raise ConfigError(
            f"{name} names cores for {_count(len(listed), 'rank')}, but {ranks} are started here; "
            'separate the cores of ranks with ":", as in 0-3:4-7'
        )
    core_of = {thread: core for core in topology.cores for thread in core.threads}
    chosen = []
    for rank, cpus in enumerate(listed[:ranks]):
        if strange := sorted(set(cpus) - core_of.keys()):
            raise ConfigError(
                f"{name} gives core {cpu_text(strange)} to rank {rank}, but this process may use "
                f"{cpu_text(topology.cpus)} only; choose among those"
            )
        wanted: dict[Core, list[int]] = {}
        for cpu in sorted(set(cpus)):
            wanted.setdefault(core_of[cpu], []).append(cpu)
        chosen.append([Core(tuple(threads), core.node) for core, threads in wanted.items()])
    return _bound(chosen, topology, name)


def _deal(ranks: int, nodes: dict[int, list[Core]]) -> list[int]:
    """The node of each rank, in the order of nodes: the next one goes where a rank gets most cores."""
    counts = dict.fromkeys(nodes, 0)
    for _ in range(ranks):
        roomiest = max(nodes, key=lambda node: (len(nodes[node]) / (counts[node] + 1), -node))
        counts[roomiest] += 1
    return [node for node, count in counts.items() for _ in range(count)]


def _automatic(ranks: int, topology: Topology) -> list[list[Core]]:
    nodes = topology.nodes
    if ranks < len(nodes):  # several neighbouring nodes for a rank
        rank_of = {node: place * ranks // len(nodes) for place, node in enumerate(nodes)}
        return [[core for core in topology.cores if rank_of[core.node] == rank] for rank in range(ranks)]
    homes = _deal(ranks, nodes)
    chosen: list[list[Core]] = []
    for node, cores in nodes.items():
        count = homes.count(node)
        if not count:
            continue
        each, rest = divmod(len(cores), count)
        if not chosen:  # the root rank's node: what is left over is the root's
            sizes = [each + rest] + [each] * (count - 1)
        else:
            sizes = [each + (place < rest) for place in range(count)]
        for place, size in enumerate(sizes):
            first = sum(sizes[:place])
            chosen.append(cores[first : first + size])
    return chosen


def _by_quota(ranks: int, topology: Topology, config: Config) -> list[list[Core]]:
    """As many physical cores as the user says; those of the root rank are the rest if nothing is said."""
    cores, root = len(topology.cores), config.numa_root_quota
    default = config.numa_default_quota
    if default is None:
        default = max(1, (cores - (root or 0)) // (ranks - 1)) if ranks > 1 else 1
    needed = default * (ranks - 1) + (root or 1)
    if needed > cores:
        raise ConfigError(
            f"{ranks} ranks need {needed} cores with BYTEPS_NUMA_DEFAULT_QUOTA={default} and "
            f"BYTEPS_NUMA_ROOT_QUOTA={root or 'unset'}, but {_count(cores, 'physical core')} can be used; "
            "lower the quotas or start fewer ranks"
        )
    free = {node: list(members) for node, members in topology.nodes.items()}
    homes = _deal(ranks, topology.nodes)
    if root is not None:
        first = _take(free, homes[0], root)
        return [first, *(_take(free, homes[rank], default) for rank in range(1, ranks))]
    first = [free[homes[0]].pop(0)]
    others = [_take(free, homes[rank], default) for rank in range(1, ranks)]
    return [first + free[homes[0]], *others]  # the rest, but of its own node


def _take(free: dict[int, list[Core]], home: int, wanted: int) -> list[Core]:
    """``wanted`` cores of the home node if it has them, else of another, else of several."""
    nodes = sorted(free, key=lambda node: (node != home, -len(free[node]), node))
    whole = next((node for node in nodes if len(free[node]) >= wanted), None)
    taken: list[Core] = []
    for node in nodes if whole is None else [whole]:
        count = wanted - len(taken)
        taken += free[node][:count]
        del free[node][:count]
    return taken


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
