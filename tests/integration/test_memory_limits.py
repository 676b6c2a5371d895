"""A process that has no memory for what it should do says so by name and lives: RLIMIT_AS, a cgroup."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import memory_job
from memory_limit import MIB, address_space, cgroup, gather

from byteps.testing.cluster import Cluster, cluster

SETTINGS = {"BYTEPS_ENABLE_IPC": "0", "BYTEPS_SERVER_ENGINE_THREAD": "1"}
REMEDY = "give the servers more memory, or start more of them (DMLC_NUM_SERVER)"


@pytest.fixture
def fifos(tmp_path: Path) -> Path:
    for rank in (0, 1):
        os.mkfifo(tmp_path / str(rank))
    return tmp_path


def check_alive(job: Cluster) -> list[Any]:
    results: list[Any] = job.wait()  # everybody ended with 0
    assert not any("Traceback" in process.output for process in job.processes), job.describe()
    return results


def check_ended(job: Cluster) -> None:
    job.wait(check=False)
    for process in job.processes:  # by an error, and not by a signal
        assert process.exit_code == 1, job.describe()


def test_a_tensor_that_a_server_has_no_room_for_is_refused_by_name(fifos: Path) -> None:
    with cluster(memory_job.too_much, workers=2, servers=1, args=[str(fifos), 600], env=SETTINGS) as job:
        workers = gather(fifos, 0, 1)
        address_space(job.servers[0].pid, 400 * MIB)
        workers.close()
        for errors, total in check_alive(job):
            assert len(errors) == 2
            for error in errors:
                assert "tensor 'large'" in error and "server 0" in error and REMEDY in error, error
                assert f"no memory for {600 * MIB} bytes" in error and "RLIMIT_AS" in error, error
            assert total == 5.0


@pytest.mark.parametrize(
    ("limit", "named"), [(address_space, "RLIMIT_AS"), (cgroup, "memory cgroup")], ids=["rlimit", "cgroup"]
)
def test_a_round_that_a_server_has_no_memory_for_fails_by_name(fifos: Path, limit: Any, named: str) -> None:
    with cluster(
        memory_job.more_and_more, workers=2, servers=1, args=[str(fifos), 60, 8], env=SETTINGS
    ) as job:
        workers = gather(fifos, 0, 1)
        with limit(job.servers[0].pid, 360 * MIB):
            workers.close()
            results = check_alive(job)
        assert all(sums < 8 and small == 5.0 for _, sums, small in results), results
        for error, sums, _ in results:
            assert f"tensor.{sums}" in error and "server 0" in error and REMEDY in error, error
            assert re.search(r"no memory for \d+ bytes", error) and named in error, error


@pytest.mark.parametrize(
    ("limit", "named"), [(address_space, "RLIMIT_AS"), (cgroup, "memory cgroup")], ids=["rlimit", "cgroup"]
)
def test_a_worker_without_memory_is_the_culprit(fifos: Path, limit: Any, named: str) -> None:
    """It says so itself, and all others end because of it."""
    with cluster(memory_job.compressed, workers=2, servers=1, args=[str(fifos), 64, 32], env=SETTINGS) as job:
        workers = gather(fifos, 1)
        with limit(job.workers[1].pid, 700 * MIB):
            workers.close()
            check_ended(job)
        own = job.workers[1].output
        assert "OutOfMemoryError" in own and "worker 1" in own and named in own, job.describe()
        assert re.search(r"tensor\.\d+: worker 1: .*no memory for \d+ bytes", own), job.describe()
        for other in (job.workers[0], *job.servers):
            assert re.search(r"worker 1 .* was lost: .*OutOfMemoryError", other.output), job.describe()


def test_who_goes_on_without_memory_for_a_tensor_leaves_nobody_waiting(fifos: Path) -> None:
    env = {**SETTINGS, "BYTEPS_OP_TIMEOUT_S": "60"}
    with cluster(memory_job.caught, workers=2, servers=1, args=[str(fifos), 64, 12], env=env) as job:
        workers = gather(fifos, 1)
        address_space(job.workers[1].pid, 700 * MIB)
        workers.close()
        for error, total in check_alive(job):
            assert total == 5.0
            assert "late" in error and "worker 1" in error and "no memory for" in error, error
            assert "RLIMIT_AS" in error, error


@pytest.mark.parametrize("way", ["undeclared", "declared to the server"])
def test_who_pushes_what_the_scheduler_does_not_know_loses_its_connection(fifos: Path, way: str) -> None:
    with cluster(memory_job.attack, workers=2, servers=1, args=[str(fifos), way], env=SETTINGS) as job:
        workers = gather(fifos, 0, 1)
        address_space(job.servers[0].pid, 200 * MIB)
        workers.close()
        check_ended(job)
        assert re.search("worker 0 .* broke the protocol", job.servers[0].output), job.describe()
        assert "no memory" not in job.servers[0].output, job.describe()  # it did not even ask
        assert "worker 0" in job.workers[1].output, job.describe()


def test_a_few_bytes_of_declared_gigabytes_take_no_memory_that_is_not_there(fifos: Path) -> None:
    settings = {**SETTINGS, "BYTEPS_PARTITION_BYTES": str(128 * MIB)}
    with cluster(memory_job.attack, workers=2, servers=1, args=[str(fifos), "declared"], env=settings) as job:
        workers = gather(fifos, 0, 1)
        address_space(job.servers[0].pid, 650 * MIB)
        workers.close()
        assert check_alive(job) == [5.0, 5.0]
        assert re.search(r"huge .*no memory for \d+ bytes", job.servers[0].output), job.describe()
