"""One suite for every interface in jobs of every size: what ``checks.py`` lists, in real processes.

A job is started once for each size and runs all checks of all interfaces; each check is a test of its own
here.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import NamedTuple

import checks
import pytest
from interfaces import INTERFACES

from byteps import _core
from byteps.testing import ClusterError
from byteps.testing.checks import outcome, outcomes_of, require


class Topology(NamedTuple):
    """A job; ``staged``: the kernel forbids ranks to read each other's memory."""

    workers: int
    servers: int
    nproc: tuple[int, ...] | None = None
    staged: bool = False

    @property
    def size(self) -> int:
        return sum(self.nproc) if self.nproc else self.workers


TOPOLOGIES = {
    "job of one": Topology(1, 0),
    "1 worker, 1 server": Topology(1, 1),
    "2 workers, 1 server": Topology(2, 1),
    "3 workers, 2 servers": Topology(3, 2),
    "3 ranks": Topology(1, 0, (3,)),
    "2 ranks through the arena": Topology(1, 0, (2,), staged=True),
    "machines of 2 and 1 ranks, 2 servers": Topology(2, 2, (2, 1)),
}
ENVIRONMENT = {
    "BYTEPS_PARTITION_BYTES": "4100",  # rounded down to 4096, so that small tensors have many partitions
    "BYTEPS_SERVER_ENGINE_THREAD": "2",
    "BYTEPS_MIN_COMPRESS_BYTES": "0",
    "BYTEPS_OP_TIMEOUT_S": "20",
    "BYTEPS_CONNECT_TIMEOUT_S": "30",
}
# Frameworks take seconds to load. What differs between topologies is the core's business and is tested with
# PyTorch; for the others, one job over the network and one in shared memory.
if "torch" not in INTERFACES:
    TOPOLOGIES = {name: TOPOLOGIES[name] for name in ("2 workers, 1 server", "2 ranks through the arena")}


def worker(folder: str, staged: bool) -> dict[str, str]:
    """All checks of all interfaces: the outcome of each, as text."""
    if staged:
        _core.can_read = lambda pid, address, value: False
    outcomes: dict[str, str] = {}
    for api in (each() for each in INTERFACES.values()):
        api.bps.init()
        for name, run in checks.check.items():
            if name in checks.IN_PLACE_CHECKS and not api.in_place:
                continue
            api.bps.barrier()  # ranks enter a check together even when the last one failed on some of them
            outcomes[f"{api.name} {name}"] = outcome(run, checks.Context(api, name, Path(folder)))
    return outcomes


@functools.cache
def outcomes(topology: str) -> list[dict[str, str]] | ClusterError:
    """What every rank says about every check."""
    workers, servers, nproc, staged = TOPOLOGIES[topology]
    with tempfile.TemporaryDirectory() as folder:
        return outcomes_of(
            worker,
            workers=workers,
            servers=servers,
            nproc=nproc,
            args=(folder, staged),
            env=ENVIRONMENT,
            deadline_s=110,
        )


CASES = [
    (interface, name)
    for interface in INTERFACES.values()
    for name in checks.check
    if interface.in_place or name not in checks.IN_PLACE_CHECKS
]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(("interface", "check"), [(i.name, c) for i, c in CASES])
def test_operation(topology: str, interface: str, check: str) -> None:
    found = outcomes(topology)
    assert isinstance(found, ClusterError) or len(found) == TOPOLOGIES[topology].size
    require(found, f"{interface} {check}")
