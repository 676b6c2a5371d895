"""Scripts as people have written them for Horovod, run with nothing but the import changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from byteps.testing import cluster

SCRIPTS = Path(__file__).with_name("horovod_scripts")
ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "60", "BYTEPS_CONNECT_TIMEOUT_S": "60"}
JOBS: dict[str, dict[str, int]] = {"one machine": {"nproc": 2}, "server": {"workers": 2, "servers": 1}}


def run(script: str, *args: object, job: str = "one machine") -> str:
    """What rank 0 says."""
    with cluster(SCRIPTS / script, **JOBS[job], args=args, env=ENVIRONMENT, deadline_s=110) as started:
        started.wait()
        return started.workers[0].output


@pytest.mark.parametrize("job", JOBS)
def test_digits_learn(job: str) -> None:
    said = run("pytorch_digits.py", job=job)
    assert float(re.findall(r"accuracy (\d\.\d+)", said)[-1]) > 0.85, said  # 0.1 would be chance
    assert "398 guesses" in said, said  # 397 test images, one of them twice


def test_digits_with_every_option() -> None:
    said = run(
        "pytorch_digits.py",
        *("--fp16-allreduce", "--gradient-predivide-factor", 2, "--batches-per-allreduce", 2),
        *("--num-groups", 3, "--epochs", 2),
    )
    assert float(re.findall(r"accuracy (\d\.\d+)", said)[-1]) > 0.7, said


def test_adasum_is_refused_where_the_script_asks_for_it() -> None:
    with cluster(
        SCRIPTS / "pytorch_digits.py", nproc=2, args=["--use-adasum"], env=ENVIRONMENT, deadline_s=60
    ) as job:
        job.wait(check=False)
    assert all(worker.exit_code == 1 for worker in job.workers)
    assert "DistributedOptimizer: op=Adasum is not there" in job.workers[0].output


def test_the_synthetic_benchmark() -> None:
    said = run(
        "pytorch_synthetic.py",
        *("--no-cuda", "--width", 0.1, "--image-size", 32, "--batch-size", 2, "--fp16-allreduce"),
        *("--num-warmup-batches", 1, "--num-batches-per-iter", 1, "--num-iters", 2),
    )
    assert re.search(r"^Total img/sec on 2 CPU\(s\): \d+\.\d$", said, re.MULTILINE), said
