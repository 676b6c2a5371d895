"""Compression through real processes is what the NumPy pipeline computes, bit for bit, for every codec."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pipeline_job
import pytest

from byteps.compress.reference.pipeline import Pipeline
from byteps.testing import cluster


class Topology(NamedTuple):
    machines: list[list[int]]  # ranks of each
    servers: int = 1
    threads: int = 1
    env: tuple[tuple[str, str], ...] = ()


TOPOLOGIES = {
    "2 workers": Topology([[0], [1]]),
    "4 workers, 2 servers, over sockets, in the sending threads": Topology(
        [[0], [1], [2], [3]], servers=2, threads=0, env=(("BYTEPS_ENABLE_IPC", "0"),)
    ),
    "2 machines of 2, 4 threads": Topology([[0, 1], [2, 3]], threads=4),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_codec(name: str, tmp_path: Path) -> None:
    machines, servers, threads, more = TOPOLOGIES[name]
    env = {
        "BYTEPS_PARTITION_BYTES": str(pipeline_job.PARTITION_BYTES),
        "BYTEPS_MIN_COMPRESS_BYTES": "0",
        "BYTEPS_THREADPOOL_SIZE": str(threads),
        **dict(more),
    }
    ranks = sum(map(len, machines))
    nproc = None if ranks == len(machines) else [len(machine) for machine in machines]
    with cluster(
        pipeline_job.worker,
        workers=len(machines),
        servers=servers,
        nproc=nproc,
        args=(str(tmp_path),),
        env=env,
        deadline_s=100,
    ) as job:
        counters = job.wait()
    wrong = []
    for number, (text, spec) in enumerate(pipeline_job.cases().items()):
        elements = pipeline_job.PARTITION_BYTES // 4
        pipeline = Pipeline(
            spec, f"case {number}", pipeline_job.ELEMENTS, machines, elements, pipeline_job.SEED
        )
        weights = pipeline_job.begin()
        for step in range(pipeline_job.STEPS):
            gradients = [pipeline_job.gradient(weights, rank, step) for rank in range(ranks)]
            average = number % 3 != 2
            result = pipeline.push_pull(gradients, average=average, lr=pipeline_job.rate(step), mu=0.8)
            weights = pipeline_job.update(weights, result, step)
        for rank in range(ranks):
            ours = np.load(tmp_path / f"{number}.{rank}.npy")
            if ours.tobytes() != weights.tobytes():
                wrong.append(f"{text}: rank {rank}: {np.flatnonzero(ours != weights).size} elements differ")
    assert not wrong, "\n".join(wrong)
    assert all(0 < each["pushed_wire_bytes"] < each["pushed_bytes"] for each in counters)
    assert all(0 < each["pulled_wire_bytes"] < each["pulled_bytes"] for each in counters)
