"""bpslaunch --slurm on a real Slurm of two nodes, all of it on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_cluster
from launch_job import SOURCE, Job, ended, run

PYTHON = (sys.executable, "-m", "byteps.launcher", "--slurm")
# Sums, and looks for the secret of the job in the command line of every process of this machine.
WORKER = """
import os, pathlib, sys
import numpy as np, byteps as bps
bps.init()
total = bps.push_pull(np.full(9, 4.0**bps.rank()), average=False, name="x")[0]
secret = os.environ["BYTEPS_JOB_SECRET"]
leaks = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        leaks += [str(path)] if secret.encode() in path.read_bytes() else []
    except OSError:
        pass
bps.barrier()
pathlib.Path(os.environ["HERE"], "secret").write_text(secret)
sys.stdout.write(f"sum {total} {bps.rank()} {bps.size()} {bps.local_rank()} {os.environ['RANK']} {leaks}\\n")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm")) as env:
        yield {name: text for name, text in env.items() if name.startswith("SLURM_")}


def slurm(cluster: dict[str, str], folder: Path, *argv: str) -> Job:
    return Job(argv, **cluster, XDG_CONFIG_HOME=str(folder), HERE=str(folder), PYTHONPATH=SOURCE)


def sums(job: Job) -> list[str]:
    return sorted(re.findall(r"sum .*", job.out.decode()))


def test_tasks_of_two_nodes_are_ranks(cluster: dict[str, str], tmp_path: Path) -> None:
    argv = ("srun", "-N2", "--ntasks-per-node=2", *PYTHON, sys.executable, "-c", WORKER)
    job = run(slurm(cluster, tmp_path, *argv))
    assert job.process.returncode == 0, job.said
    assert sums(job) == [f"sum 85.0 {rank} 4 {rank % 2} {rank} []" for rank in range(4)]
    assert sorted(re.findall(r"done in .*: (.*)", job.said)) == [
        "1 scheduler, 1 server, 1 worker",
        "1 server, 1 worker",
    ]
    secret, key = (tmp_path / "secret").read_text(), tmp_path / "byteps" / "job-key"
    assert len(secret) == 64 and secret not in job.out.decode() + job.said
    assert key.stat().st_mode & 0o777 == 0o600 and secret != key.read_text()


def test_one_node_needs_no_server(cluster: dict[str, str], tmp_path: Path) -> None:
    job = run(slurm(cluster, tmp_path, "srun", "-N1", "-n2", *PYTHON, sys.executable, "-c", WORKER))
    assert job.process.returncode == 0, job.said
    assert sums(job) == [f"sum 5.0 {rank} 2 {rank} {rank} []" for rank in range(2)]


def test_nodes_for_servers(cluster: dict[str, str], tmp_path: Path) -> None:
    argv = ("srun", "-N2", "--ntasks-per-node=1", *PYTHON, "--server-nodes", "1", "-n", "2", sys.executable)
    job = run(slurm(cluster, tmp_path, *argv, "-c", WORKER))
    assert job.process.returncode == 0, job.said
    assert sums(job) == [f"sum 5.0 {rank} 2 {rank} {rank} []" for rank in range(2)]
    assert "1 scheduler, 2 workers" in job.said


def test_an_allocation_without_a_step_starts_srun(cluster: dict[str, str], tmp_path: Path) -> None:
    argv = ("salloc", "-N2", "--ntasks-per-node=1", *PYTHON, sys.executable, "-c", WORKER)
    job = run(slurm(cluster, tmp_path, *argv))
    assert job.process.returncode == 0, job.said
    assert sums(job) == [f"sum 5.0 {rank} 2 0 {rank} []" for rank in range(2)]
    assert not (tmp_path / "byteps").exists()  # srun has passed a new secret on, no key was needed


def test_a_failure_is_the_code_of_srun(cluster: dict[str, str], tmp_path: Path) -> None:
    script = "[ $SLURM_PROCID = 1 ] && exit 3; exec sleep 1000"
    argv = ("srun", "--kill-on-bad-exit=1", "-N2", "--ntasks-per-node=1", *PYTHON, "sh", "-c", script)
    job = run(slurm(cluster, tmp_path, *argv))
    assert "worker 1 exited with code 3" in job.said
    assert job.process.returncode in (3, 143)  # srun reports the highest of all tasks, and it ended the other


def test_scancel_leaves_nothing(cluster: dict[str, str], tmp_path: Path) -> None:
    script = "echo job $SLURM_JOB_ID ready $$; while :; do sleep 1000; done"
    with slurm(cluster, tmp_path, "srun", "-N2", "-n2", *PYTHON, "sh", "-c", script) as job:
        found = job.expect(r"(?s)job (\d+) ready (\d+).*ready (\d+)")
        subprocess.run(["scancel", found[1]], env={**os.environ, **cluster}, check=True, timeout=30)
        assert job.end() != 0
    assert ended(int(found[2])) and ended(int(found[3]))


def test_ctrl_c_of_srun_leaves_nothing(cluster: dict[str, str], tmp_path: Path) -> None:
    # Slurm kills everybody at once, and without control groups it loses sight of orphans.
    script = "echo ready $$; exec sleep 1000"
    with slurm(cluster, tmp_path, "srun", "-N2", "-n2", *PYTHON, "sh", "-c", script) as job:
        found = job.expect(r"(?s)ready (\d+).*ready (\d+)")
        job.send(signal.SIGTERM)
        assert job.end() != 0
    assert ended(int(found[1])) and ended(int(found[2]))


def test_outside_of_slurm_is_wrong_use() -> None:
    job = run(Job((*PYTHON, "true"), SLURM_JOB_ID=""))
    assert job.process.returncode == 2 and "start it with srun or sbatch" in job.said
