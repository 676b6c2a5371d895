"""One suite for every interface in jobs of every size: what ``checks.py`` lists, in real processes.

A job is started once for each size and runs all checks of all interfaces; each check is a test of its own
here.
"""

from __future__ import annotations

import functools
import tempfile
import traceback
from pathlib import Path

import checks
import pytest
from interfaces import INTERFACES

from byteps.testing import ClusterError, cluster

TOPOLOGIES = {
    "job of one": (1, 0),
    "1 worker, 1 server": (1, 1),
    "2 workers, 1 server": (2, 1),
    "3 workers, 2 servers": (3, 2),
}
ENVIRONMENT = {
    "BYTEPS_PARTITION_BYTES": "4100",  # rounded down to 4096, so that small tensors have many partitions
    "BYTEPS_SERVER_ENGINE_THREAD": "2",
    "BYTEPS_OP_TIMEOUT_S": "20",
    "BYTEPS_CONNECT_TIMEOUT_S": "30",
}
OK = "ok"


def worker(folder: str) -> dict[str, str]:
    """All checks of all interfaces: the outcome of each, as text."""
    outcomes: dict[str, str] = {}
    for api in (each() for each in INTERFACES.values()):
        api.bps.init()
        for name, run in checks.CHECKS.items():
            if name in checks.IN_PLACE_CHECKS and not api.in_place:
                continue
            api.bps.barrier()  # ranks enter a check together even when the last one failed on some of them
            try:
                run(checks.Context(api, name, Path(folder)))
                outcomes[f"{api.name} {name}"] = OK
            except Exception:
                outcomes[f"{api.name} {name}"] = traceback.format_exc()
    return outcomes


@functools.cache
def outcomes(topology: str) -> list[dict[str, str]] | ClusterError:
    """What every rank says about every check."""
    workers, servers = TOPOLOGIES[topology]
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(
            worker, workers=workers, servers=servers, args=(folder,), env=ENVIRONMENT, deadline_s=110
        ) as job,
    ):
        try:
            return job.wait()
        except ClusterError as error:
            return error


CASES = [
    (interface, name)
    for interface in INTERFACES.values()
    for name in checks.CHECKS
    if interface.in_place or name not in checks.IN_PLACE_CHECKS
]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(("interface", "check"), [(i.name, c) for i, c in CASES])
def test_operation(topology: str, interface: str, check: str) -> None:
    found = outcomes(topology)
    if isinstance(found, ClusterError):
        pytest.fail(str(found), pytrace=False)
    assert len(found) == TOPOLOGIES[topology][0]
    for rank, outcome in enumerate(found):
        assert outcome[f"{interface} {check}"] == OK, f"rank {rank}: {outcome[f'{interface} {check}']}"
