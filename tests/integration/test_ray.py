"""BytePSExecutor and bpslaunch --ray on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_job import BPSLAUNCH, Job, ended, environment, run

pytest.importorskip("ray", reason="Ray is not installed; requirements/test.txt has it")
pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
QUIET = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
WORKER = """
import numpy as np, byteps as bps
bps.init()
print("sum", bps.push_pull(np.full(9, 4.0**bps.rank()), average=False, name="x")[0], bps.rank(), flush=True)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Ray makes a folder of its own in there, for its sockets, whose names must be short, and for the address
    # that it writes down; the usual one exists only where Ray was used before.
    folder = tmp_path_factory.getbasetemp()
    process = subprocess.Popen(
        (sys.executable, str(HERE / "ray_head.py")),
        env=environment(**QUIET, RAY_TMPDIR=str(folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("address "), line
        yield line.split()[1]
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def launch(address: str, *args: str) -> Job:
    return Job((*BPSLAUNCH, "--ray", "--ray-address", address, *args), **QUIET)


def test_executor(address: str) -> None:
    done = subprocess.run(
        (sys.executable, str(HERE / "ray_job.py")),
        env=environment(**QUIET, RAY_ADDRESS=address),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall("passed (.*)", done.stdout) == [
        *("two nodes", "servers None", "servers 2", "not enough", "given back"),
    ]


def test_a_command(address: str) -> None:
    args = ("--workers", "2", "-n", "2", "--servers", "2", "--cpus-per-worker", "0.5", "python", "-c", WORKER)
    job = run(launch(address, *args))
    assert job.process.returncode == 0, job.said
    assert sorted(re.findall(r"sum .*", job.out.decode())) == [f"sum 85.0 {rank}" for rank in range(4)]
    assert re.search(r"\[worker 2@[0-9.]+\] sum", job.out.decode())
    assert "1 scheduler, 2 servers, 4 workers" in job.said


def test_a_failure_and_its_last_lines(address: str) -> None:
    job = run(
        launch(address, "-n", "2", "sh", "-c", "[ $RANK = 0 ] && exec sleep 1000; echo last words; exit 3")
    )
    assert job.process.returncode == 3, job.said
    assert re.search(r"the last line of worker 1@[0-9.]+:\n\[worker 1@[0-9.]+\] last words", job.said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_launcher_ends_all(address: str, number: signal.Signals) -> None:
    with launch(address, "-n", "2", "sh", "-c", "echo ready $$; exec sleep 1000") as job:
        found = job.expect(r"(?s)ready (\d+).*ready (\d+)")
        job.send(number)
        assert job.end() == (130 if number == signal.SIGINT else -9)
    assert ended(int(found[1])) and ended(int(found[2]))


def test_wrong_use(address: str) -> None:
    job = run(launch(address, "--workers", "500", "--ray-timeout", "0.5", "true"))
    assert job.process.returncode == 1 and "free now" in job.said
    assert run(launch(address, "--workers", "0", "true")).process.returncode == 2
    job = run(launch(address, "--dry-run", "--workers", "2", "python", "train.py"))
    assert "[worker 1] python train.py" in job.out.decode()
