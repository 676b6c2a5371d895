"""Who is in a job that forms: who may register, who is missing, and which rank each one gets. Pure.

Worker machines are counted by DMLC_WORKER_ID; a machine is complete when all its local ranks are there.
Global rank = local sizes of all lower machines + local rank, unless BYTEPS_GLOBAL_RANK forces it.
Servers have no number of their own: they get ranks in the order in which they came, and keep them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from byteps.control import sentences
from byteps.control.messages import Member, Register

PARTITION_BYTES = "BYTEPS_PARTITION_BYTES"
MAX_LISTED = 20


class Standing(enum.Enum):
    WAITING = "registered for the epoch that forms"
    ACTIVE = "in the running epoch"
    SUSPENDED = "left the epoch, stays connected, may come back"


@dataclass(frozen=True)
class Seat:
    """One connected process: its connection, what it said, and where it stands.

    ``instance`` is the same when a process connects again; ``rank`` is valid once it was in an epoch;
    ``started_at`` is when the process began, on the scheduler's clock.
    """

    number: int
    instance: int
    register: Register
    standing: Standing = Standing.WAITING
    rank: int = -1
    started_at: float = 0.0

    @property
    def incarnation(self) -> int:
        """The process itself, however often it connects."""
        return self.register.origin.incarnation

    def __str__(self) -> str:
        said = self.register
        if self.rank >= 0 and (said.role == "server" or self.standing is not Standing.WAITING):
            return sentences.member(said.role, self.rank, said.host, said.pid)
        where = f"host {said.host}, pid {said.pid}"
        if said.role == "server":
            return f"server ({where})"
        local = f" local rank {said.local_rank}" if said.local_size > 1 else ""
        return f"worker {said.worker_id}{local} ({where})"


@dataclass(frozen=True)
class Expected:
    """How many must come, and who said so."""

    workers: int
    servers: int
    source: str


def workers_of(seats: Iterable[Seat]) -> list[Seat]:
    """The waiting workers."""
    return [s for s in seats if s.register.role == "worker" and s.standing is Standing.WAITING]


def servers_of(seats: Iterable[Seat]) -> list[Seat]:
    """The waiting servers in the order of their ranks to be."""
    servers = [s for s in seats if s.register.role == "server" and s.standing is Standing.WAITING]
    return sorted(servers, key=lambda s: (s.rank < 0, s.rank, s.number))


def refusal(seat: Seat, others: Iterable[Seat], expected: Expected) -> str:
    """Why this process cannot be in the job with the others that wait, or nothing."""
    said = seat.register
    others = [s for s in others if s.number != seat.number and s.instance != seat.instance]
    workers, servers = workers_of(others), servers_of(others)
    for variable, here, there in (
        ("DMLC_NUM_WORKER", said.num_workers, expected.workers),
        ("DMLC_NUM_SERVER", said.num_servers, expected.servers),
    ):
        if here != there:
            return (
                f"{seat} has {variable}={here}, {expected.source} has {there}; set it alike on all processes"
            )
    for other in workers + servers:
        if differs := unlike(seat, other.register.agreed, str(other)):
            return differs
    if said.role == "server":
        return "" if said.shards > 0 and said.port > 0 else f"{seat} has no port or no shards"
    return _worker_refusal(seat, workers, expected)


def unlike(seat: Seat, agreed: Mapping[str, str], whose: str) -> str:
    """Which setting that all must share this process has otherwise than ``whose``, or nothing."""
    for name in sorted(seat.register.agreed.keys() & agreed.keys()):
        here, there = seat.register.agreed[name], agreed[name]
        if here != there:
            return f"{seat} has {_set(name, here)}, {whose} has {_set(name, there)}; set it alike everywhere"
    return ""


def _set(name: str, value: str) -> str:
    return f"{name} unset" if (name, value) == (PARTITION_BYTES, "0") else f"{name}={value}"


def _worker_refusal(seat: Seat, workers: list[Seat], expected: Expected) -> str:
    said = seat.register
    if said.local_rank >= said.local_size:
        return (
            f"{seat} has BYTEPS_LOCAL_RANK={said.local_rank}, not below BYTEPS_LOCAL_SIZE={said.local_size}"
        )
    if not said.agreed.get(PARTITION_BYTES, "").isdecimal():
        return f"{seat} did not say its {PARTITION_BYTES}"
    if said.global_rank is None and said.worker_id >= expected.workers:
        return (
            f"{seat} has DMLC_WORKER_ID={said.worker_id}, but {expected.source} has "
            f"DMLC_NUM_WORKER={expected.workers}: ids go from 0 to {expected.workers - 1}"
        )
    for other in workers:
        its = other.register
        if (its.global_rank is None) != (said.global_rank is None):
            with_it, without = (seat, other) if its.global_rank is None else (other, seat)
            return (
                f"{with_it} sets BYTEPS_GLOBAL_RANK and {without} does not; set it on all workers or on none"
            )
        if its.worker_id == said.worker_id and its.local_size != said.local_size:
            return (
                f"{seat} has BYTEPS_LOCAL_SIZE={said.local_size}, {other} on the same machine has "
                f"{its.local_size}; set it alike on one machine"
            )
    return ""


def surplus(seat: Seat, others: Iterable[Seat], expected: Expected) -> str:
    """Which of the others has the place of this process, or that all places are taken; or nothing."""
    said = seat.register
    others = [s for s in others if s.number != seat.number and s.register.role == said.role]
    if said.role == "server":
        if len(others) < expected.servers:
            return ""
        return (
            f"{seat} is one too many: the job has all its {expected.servers} servers "
            f"({listed(str(s) for s in others)}); raise DMLC_NUM_SERVER everywhere, or start fewer"
        )
    for other in others:
        its = other.register
        if said.global_rank is not None and its.global_rank == said.global_rank:
            return f"{seat} has BYTEPS_GLOBAL_RANK={said.global_rank}, and so has {other}; each needs its own"
        if place_of(other) == place_of(seat):
            return (
                f"{seat} came twice: {other} is already there; give every worker machine its own "
                "DMLC_WORKER_ID and every process on it its own BYTEPS_LOCAL_RANK"
            )
    machines = _machines(others)
    if said.worker_id not in machines and len(machines) >= expected.workers:
        return f"{seat} is one too many: {expected.workers} worker machines are already there"
    return ""


def place_of(seat: Seat) -> tuple[int, int]:
    """Where a worker belongs: its machine, and which of its ranks it is."""
    return seat.register.worker_id, seat.register.local_rank


def missing(seats: Iterable[Seat], expected: Expected) -> str:
    """Who has to come before the job can start; empty when it is complete."""
    seats = list(seats)
    workers, servers = workers_of(seats), servers_of(seats)
    machines = _machines(workers)
    complete = sum(len(ranks) == ranks[0].register.local_size for ranks in machines.values())
    server_count = min(len(servers), expected.servers)
    if complete == expected.workers and server_count == expected.servers:
        return ""
    counts = f"{complete} of {expected.workers} workers"
    if expected.workers == 1 and machines:  # on one machine the ranks are the workers
        counts = f"{len(workers)} of {workers[0].register.local_size} workers"
    gone = []
    if complete < expected.workers:
        gone.append(f"worker {listed(_missing_workers(machines, expected.workers))}")
    if expected.servers:
        counts += f", {server_count} of {expected.servers} servers"
        if server_count < expected.servers:
            gone.append(f"server {listed(str(n) for n in range(server_count, expected.servers))}")
    return f"{counts}; missing {'; '.join(gone)}"


def _missing_workers(machines: dict[int, list[Seat]], count: int) -> list[str]:
    # With forced ranks machine numbers need not be 0..n-1: after a shrink, 1 and 3 may be all that is left.
    forced = any(s.register.global_rank is not None for ranks in machines.values() for s in ranks)
    names = [] if forced else [str(n) for n in range(count) if n not in machines]
    for number, ranks in machines.items():
        size = ranks[0].register.local_size
        if len(ranks) < size:
            absent = sorted(set(range(size)) - {s.register.local_rank for s in ranks})
            if count == 1:  # on one machine the ranks are those of the job
                names += map(str, absent)
            else:
                names.append(f"{number} (local rank {listed(str(n) for n in absent)})")
    if forced and len(machines) < count:
        names.append(f"machines: {count - len(machines)} more")
    return sorted(names, key=lambda name: int(digits) if (digits := name.split()[0]).isdecimal() else count)


def ranks_of(seats: Iterable[Seat]) -> tuple[dict[int, int], str]:
    """Rank of every waiting worker by seat number, or why the forced ranks do not fit."""
    workers = sorted(workers_of(seats), key=lambda s: (s.register.worker_id, s.register.local_rank))
    if not any(s.register.global_rank is not None for s in workers):
        return {s.number: rank for rank, s in enumerate(workers)}, ""
    ranks = {s.number: s.register.global_rank or 0 for s in workers}
    for seat in workers:
        if ranks[seat.number] >= len(workers):
            return {}, (
                f"{seat} has BYTEPS_GLOBAL_RANK={ranks[seat.number]}, but there are {len(workers)} workers: "
                f"ranks go from 0 to {len(workers) - 1}"
            )
    return ranks, ""


def member(seat: Seat) -> Member:
    """A seated process as the others see it."""
    said = seat.register
    return Member(
        role=said.role,
        rank=seat.rank,
        host=said.host,
        address=said.address,
        port=said.port,
        shards=said.shards,
        worker_id=said.worker_id,
        local_rank=said.local_rank,
        local_size=said.local_size,
        pid=said.pid,
        incarnation=seat.incarnation,
        machine=said.machine,
    )


def _machines(workers: Iterable[Seat]) -> dict[int, list[Seat]]:
    machines: dict[int, list[Seat]] = {}
    for seat in workers:
        machines.setdefault(seat.register.worker_id, []).append(seat)
    return machines


def listed(names: Iterable[str]) -> str:
    """Names for a line of text: not more than people read."""
    names = list(names)
    rest = len(names) - MAX_LISTED
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:MAX_LISTED])} and {rest} more"
