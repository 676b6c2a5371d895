"""Which worker ranks share a machine, and what counts as one contributor to the servers. Pure.

A machine is all workers with one DMLC_WORKER_ID. Grouped ranks sum on their machine first, so to a server
the *children* are machines: for a key each contributes once, through whichever of its ranks owns the piece.
Ranks that are not grouped are children of their own.
"""

from __future__ import annotations

import hashlib

from byteps import _core
from byteps.control import machine
from byteps.control.messages import Member, View

__all__ = ["children", "epoch_of", "gathering", "machine_index", "machines", "on_one_host", "piece_bytes"]


def machines(view: View) -> list[list[Member]]:
    """The workers of every machine in rank order; machines in the order of their DMLC_WORKER_ID."""
    found: dict[int, list[Member]] = {}
    for worker in view.workers():
        found.setdefault(worker.worker_id, []).append(worker)
    return [found[worker_id] for worker_id in sorted(found)]


def machine_index(view: View, rank: int) -> int:
    """The place of a rank's machine among all machines; ids need not be 0 to n-1 after a job has shrunk."""
    workers = view.workers()
    return sorted({worker.worker_id for worker in workers}).index(workers[rank].worker_id)


def gathering(view: View) -> int:
    """A number that all members of this epoch know, and nobody else: it is made of their incarnations."""
    numbers = [view.epoch, *(member.incarnation for member in view.members)]
    text = " ".join(map(str, numbers))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def on_one_host(view: View) -> bool:
    """True when no byte of the job crosses a network."""
    return len({machine.key(member) for member in view.members}) == 1


def piece_bytes(view: View) -> int:
    """How long the pieces are that tensors without a codec travel in: the same for all members."""
    return _core.PIECE_BYTES if on_one_host(view) else _core.FAR_PIECE_BYTES


def children(view: View, grouped: bool) -> tuple[list[str], list[int]]:
    """What the servers count: the names of the children, and the child that each rank belongs to."""
    if not grouped:
        return [str(worker) for worker in view.workers()], list(range(view.size))
    child_of = [0] * view.size
    names = []
    for index, ranks in enumerate(machines(view)):
        names.append(_name(ranks))
        for worker in ranks:
            child_of[worker.rank] = index
    return names, child_of


def epoch_of(view: View, grouped: bool) -> _core.Epoch:
    """The running epoch, as the core of every member is told of it."""
    names, child_of = children(view, grouped)
    return _core.Epoch(
        view.epoch,
        ranks=[str(worker) for worker in view.workers()],
        hosts=[worker.host for worker in view.workers()],
        children=names,
        child_of=child_of,
        servers=[(str(server), server.shards) for server in view.servers()],
    )


def _name(ranks: list[Member]) -> str:
    if len(ranks) == 1:
        return str(ranks[0])
    listed = ", ".join(str(worker.rank) for worker in ranks)
    return f"workers {listed} (host {ranks[0].host})"
