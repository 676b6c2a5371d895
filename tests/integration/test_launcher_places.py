"""Where bpslaunch puts processes and their output: cores, memory, log files, and what a dry run says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from launch_job import bpslaunch, run

# What a rank is bound to, and what the scheduler that rank 0 starts is bound to.
PLACES = """
import os, sys
from pathlib import Path
import numpy as np, byteps
byteps.init()
memory = Path("/proc/self/numa_maps")
print("at", sorted(os.sched_getaffinity(0)), os.environ["OMP_NUM_THREADS"])
print("memory", memory.read_text().split()[1] if memory.exists() else "prefer:0")
if byteps.rank() == 0:
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        print("scheduler at", sorted(os.sched_getaffinity(int(child))))
print("sum", float(byteps.push_pull(np.ones(1, np.float32), name="x", average=False)[0]))
byteps.shutdown()
"""
CPUS = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="needs two processors")


@needs_two
def test_ranks_run_where_they_are_told_and_the_scheduler_everywhere() -> None:
    a, b = CPUS[:2]
    job = run(bpslaunch("-n", "2", sys.executable, "-c", PLACES, BYTEPS_VISIBLE_CPU_CORES=f"{a}:{b}"))
    assert job.process.returncode == 0, job.said
    first, second = job.lines("worker 0"), job.lines("worker 1")
    assert first[0] == f"at [{a}] 1" and second[0] == f"at [{b}] 1"
    assert first[1].startswith("memory prefer") and second[1].startswith("memory prefer")
    assert first[2] == f"scheduler at {CPUS}"
    assert first[3] == second[2] == "sum 2.0"


@needs_two
def test_a_number_of_threads_that_is_set_stays() -> None:
    a, b = CPUS[:2]
    job = run(
        bpslaunch(
            *("-n", "2", "sh", "-c", "echo $OMP_NUM_THREADS"),
            OMP_NUM_THREADS="5",
            BYTEPS_VISIBLE_CPU_CORES=f"{a}:{b}",
        )
    )
    assert job.lines("worker 0") == job.lines("worker 1") == ["5"]


def test_a_dry_run_shows_cores_or_says_why_there_are_none() -> None:
    text = run(bpslaunch("--dry-run", "-n", str(len(CPUS) + 1), "true")).out.decode()
    assert f"# no rank has cores of its own: {len(CPUS) + 1} ranks, " in text
    assert "    OMP_NUM_THREADS=1\n" in text
    cores = ":".join([str(CPUS[-1])] * 2)
    text = run(bpslaunch("--dry-run", "-n", "2", "true", BYTEPS_VISIBLE_CPU_CORES=cores)).out.decode()
    assert text.count(f"    # on processors {CPUS[-1]}") == 2


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({"BYTEPS_VISIBLE_CPU_CORES": "65535:0"}, "BYTEPS_VISIBLE_CPU_CORES gives core 65535 to rank 0"),
        ({"BYTEPS_VISIBLE_CPU_CORES": "0"}, "for 1 rank, but 2 are started here"),
        ({"BYTEPS_CPU_BLACKLIST": "0-65535"}, "BYTEPS_CPU_BLACKLIST leaves no core"),
    ],
)
def test_cores_that_are_not_there_are_wrong_use(env: dict[str, str], word: str) -> None:
    job = run(bpslaunch("-n", "2", "true", **env))
    assert job.process.returncode == 2
    assert word in job.said and "Traceback" not in job.said


def test_a_log_file_for_every_process(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "logs"
    script = (
        "echo out $DMLC_WORKER_ID; echo err >&2; printf 'x\\r 50%%\\r100%%'; exit $((3 * DMLC_WORKER_ID))"
    )
    job = run(bpslaunch("--log-dir", str(folder), "--workers", "2", "--servers", "1", "sh", "-c", script))
    assert job.process.returncode == 3
    names = {path.name for path in folder.iterdir()}
    assert names == {"scheduler.log", "server-0.log", "worker-0.log", "worker-1.log"}
    kept = (folder / "worker-1.log").read_bytes()
    assert b"out 1\n" in kept and b"err\n" in kept and b"x\r 50%\r100%" in kept  # as it was written
    assert "out 1" in job.lines("worker 1")  # and on the screen
    assert job.said.splitlines()[-1].endswith(f"; logs in {folder}")


def test_the_log_file_of_a_command_alone_and_of_a_role(tmp_path: Path) -> None:
    job = run(bpslaunch("--log-dir", str(tmp_path), "echo", "once"))
    assert (job.process.returncode, (tmp_path / "worker-0.log").read_text()) == (0, "once\n")
    assert run(bpslaunch("--log-dir", str(tmp_path), "true")).process.returncode == 0
    assert (tmp_path / "worker-0.log").read_text() == ""  # of this job, not of the one before
    env = {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
    env |= {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "1", "BYTEPS_CONNECT_TIMEOUT_S": "x"}
    assert run(bpslaunch("--log-dir", str(tmp_path), **env)).process.returncode == 2
    env |= {"BYTEPS_CONNECT_TIMEOUT_S": "0.2", "DMLC_PS_ROOT_URI": "192.0.2.1", "DMLC_PS_ROOT_PORT": "0"}
    assert run(bpslaunch("--log-dir", str(tmp_path), **env)).process.returncode != 0


def test_a_log_folder_that_cannot_be_made_is_wrong_use(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    mark = tmp_path / "mark"
    job = run(bpslaunch("--log-dir", str(file), "touch", str(mark)))
    assert job.process.returncode == 2 and not mark.exists()
    assert f"bpslaunch: error: --log-dir '{file}' cannot be used" in job.said
