"""One script, started by torchrun, by bpslaunch, and by bpslaunch with torchrun's options on two machines."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch_job import BPSLAUNCH, bpslaunch, environment, run

from byteps.launcher import here

LIMIT_S = 90.0
SCRIPT = """
import os, sys
import torch, byteps.torch as bps
bps.init()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
place = [int(os.environ[name]) for name in names]
assert place == [bps.rank(), bps.size(), bps.local_rank(), bps.local_size()], place
assert os.environ["MASTER_ADDR"] and int(os.environ["MASTER_PORT"])
total = bps.push_pull(torch.full((9,), 4.0 ** bps.rank()), average=False, name="x")[0].item()
sys.stdout.write(f"sum {total} {place}\\n")
"""

# The same without PyTorch, which takes seconds to import.
PLAIN = SCRIPT.replace("torch, byteps.torch as bps", "numpy as np, byteps as bps").replace(
    "torch.full((9,), 4.0 ** bps.rank())", "np.full(9, 4.0 ** bps.rank())"
)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def sums(text: str) -> list[str]:
    return sorted(line[line.index("sum") :] for line in text.splitlines() if "sum" in line)


def test_the_same_script_under_torchrun_and_bpslaunch(script: str) -> None:
    expected = [f"sum 5.0 {[rank, 2, rank, 2]}" for rank in range(2)]
    with here.reserve() as master:
        argv = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port")
        done = subprocess.run(
            (*argv, str(master.getsockname()[1]), script),
            env=environment(OMP_NUM_THREADS="1"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    assert done.returncode == 0, done.stderr
    assert sums(done.stdout) == expected
    job = run(bpslaunch("--standalone", "--nnodes=1", "--nproc_per_node=2", sys.executable, script))
    assert job.process.returncode == 0, job.said
    assert sums(job.out.decode()) == expected


def test_the_same_command_on_every_machine(tmp_path: Path) -> None:
    script = str(tmp_path / "plain.py")
    Path(script).write_text(PLAIN)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    common = (
        *BPSLAUNCH,
        "--nnodes",
        "2",
        "--nproc-per-node",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        port,
    )
    machines = [
        subprocess.Popen(
            (*common, "--node-rank", str(machine), sys.executable, script),
            env=environment(OMP_NUM_THREADS="1", BYTEPS_JOB_SECRET="between us"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for machine in range(2)
    ]
    try:
        said = [machine.communicate(timeout=LIMIT_S) for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
            machine.wait()
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert sums(said[0][0]) == [f"sum 85.0 {[rank, 4, rank, 2]}" for rank in (0, 1)]
    assert sums(said[1][0]) == [f"sum 85.0 {[rank, 4, rank - 2, 2]}" for rank in (2, 3)]


def test_two_jobs_with_one_address_say_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", port)
    with bpslaunch(*command, sys.executable, "-c", "import byteps; byteps.init()") as first:
        with contextlib.closing(_when_up(int(port))):
            second = run(bpslaunch(*command, "true"))
        sentence = "two jobs use this port; set DMLC_PS_ROOT_PORT or BYTEPS_JOB_ID"
        assert second.process.returncode == 2 and f"{sentence}: cannot use port {port}" in second.said
        assert first.end() == 1 and sentence in first.said


def _when_up(port: int) -> socket.socket:
    """A connection to whoever listens there soon."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), LIMIT_S)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_port_in_use_says_by_whom() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        common = ("--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", port)
        job = run(bpslaunch(*common, "true"))
        assert job.process.returncode == 2
        assert (
            f"cannot use port {port} for the scheduler" in job.said
            and f"by process {os.getpid()} (" in job.said
        )
        place = {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
        job = run(bpslaunch(**place, DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=port))
        assert job.process.returncode == 1 and f"by process {os.getpid()} (" in job.said
