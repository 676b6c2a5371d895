"""Which rank an actor is, given the node of each, and the environment of every rank. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byteps.launcher import rendezvous

__all__ = ["Job", "Place", "places", "rank_environment", "service_environment"]


@dataclass(frozen=True)
class Place:
    """Where an actor stands."""

    rank: int
    machine: int
    local_rank: int


@dataclass(frozen=True)
class Job:
    """One run: what all its members are told."""

    sizes: tuple[int, ...]
    servers: int
    root_uri: str
    root_port: int
    master_addr: str
    master_port: int
    job_id: str  # of this run alone, and so its launch id, too
    secret: str

    @property
    def common(self) -> dict[str, str]:
        """The environment of every member."""
        env = {
            "DMLC_NUM_WORKER": str(len(self.sizes)),
            "DMLC_NUM_SERVER": str(self.servers),
            "DMLC_PS_ROOT_URI": self.root_uri,
            "DMLC_PS_ROOT_PORT": str(self.root_port),
            "BYTEPS_JOB_ID": self.job_id,
            "BYTEPS_LAUNCH_ID": self.job_id,
            "BYTEPS_JOB_SECRET": self.secret,
        }
        forced = len(self.sizes) == 1 and self.servers > 0  # whoever asks for servers wants them used
        return env | {"BYTEPS_FORCE_DISTRIBUTED": "1" if forced else "0"}


def places(nodes: Sequence[str]) -> tuple[list[Place], list[int]]:
    """A place for every actor, and the number of actors of every machine: ranks of a node follow each other.

    >>> found, sizes = places(["b", "a", "b"])
    >>> [place.rank for place in found], sizes
    ([0, 2, 1], [2, 1])
    """
    order = list(dict.fromkeys(nodes))
    sizes = [nodes.count(node) for node in order]
    found = []
    for actor, node in enumerate(nodes):
        machine, local_rank = order.index(node), nodes[:actor].count(node)
        found.append(Place(sum(sizes[:machine]) + local_rank, machine, local_rank))
    return found, sizes


def rank_environment(job: Job, place: Place) -> dict[str, str]:
    """What the process of a rank sees."""
    return {
        **job.common,
        "DMLC_ROLE": "worker",
        "DMLC_WORKER_ID": str(place.machine),
        "BYTEPS_LOCAL_RANK": str(place.local_rank),
        "BYTEPS_LOCAL_SIZE": str(job.sizes[place.machine]),
        "MASTER_ADDR": job.master_addr,
        "MASTER_PORT": str(job.master_port),
        **rendezvous.place(list(job.sizes), place.machine, place.local_rank),
    }


def service_environment(job: Job, role: str) -> dict[str, str]:
    """What a scheduler or server sees."""
    return {**job.common, "DMLC_ROLE": role, "PYTHONSAFEPATH": "1"}
