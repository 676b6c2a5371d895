"""Connections between workers and servers are reset again and again: a job goes on, with the same bits."""

from __future__ import annotations

import random
import time

import pytest
from broken_job import accumulate, data_connections, exchange, reset, server_ports, why_no_resets

from byteps.testing import Cluster, cluster

pytestmark = pytest.mark.skipif(bool(why_no_resets()), reason=why_no_resets() or "can be reset here")

STEPS = 120
WAYS = {
    "sockets": {"BYTEPS_ENABLE_IPC": "0"},
    "by address": {},
    "one by one": {"BYTEPS_ENABLE_IPC": "0", "BYTEPS_THREADPOOL_SIZE": "0", "BYTEPS_SCHEDULING_CREDIT": "1"},
}


def disturb(job: Cluster, rng: random.Random) -> int:
    """Until the workers end; how many connections were reset."""
    for worker in job.workers:
        worker.wait_report(timeout_s=job.left_s)
    ports, broken = server_ports(job), 0
    while all(worker.running for worker in job.workers):
        connections = data_connections(ports)
        for port, own_port in rng.sample(connections, min(len(connections), rng.choice([1, 1, 2, 8]))):
            reset(port, own_port)
            broken += 1
        time.sleep(rng.uniform(0.0, 0.15))
    return broken


@pytest.mark.parametrize("nproc", [1, 2], ids=["a rank to a machine", "two ranks to a machine"])
@pytest.mark.parametrize("way", sorted(WAYS))
def test_results_have_the_bits_of_an_undisturbed_job(seed: int, way: str, nproc: int) -> None:
    digests = []
    for disturbed in (False, True):
        with cluster(
            exchange, workers=2, servers=2, nproc=nproc, args=(STEPS,), env=WAYS[way], deadline_s=150
        ) as job:
            broken = disturb(job, random.Random(seed)) if disturbed else 0
            results = job.wait()
            print(f"{broken} resets", [each["reconnections"] for each in results])
            assert broken == 0 or sum(each["reconnections"] for each in results) >= 5, job.describe()
        digests += [each["digest"] for each in results]
    assert len(set(digests)) == 1


def test_asynchronous_contributions_are_added_once(seed: int) -> None:
    env = {"BYTEPS_ENABLE_ASYNC": "1", "BYTEPS_ENABLE_IPC": "0"}
    with cluster(accumulate, workers=3, servers=1, args=(300,), env=env, deadline_s=120) as job:
        disturb(job, random.Random(seed))
        assert sum(each["reconnections"] for each in job.wait()) >= 3, job.describe()


def test_it_can_be_switched_off() -> None:
    env = {"BYTEPS_RECOVERY": "0", "BYTEPS_ENABLE_IPC": "0"}
    with cluster(exchange, workers=2, servers=1, args=(100_000,), env=env, deadline_s=60) as job:
        for worker in job.workers:
            worker.wait_report(timeout_s=job.left_s)
        reset(*data_connections(server_ports(job))[0])
        for process in job.processes:
            process.wait(job.left_s)
        assert all(process.exit_code != 0 for process in job.processes), job.describe()
        assert all("PeerLostError" in worker.output for worker in job.workers), job.describe()
