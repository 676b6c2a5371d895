"""Jobs that others than bpslaunch start: torchrun without PyTorch in the program, and nobody but the user."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from byteps.launcher import here
from byteps.worker.torchrun import adopted

LIMIT_S = 60
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "BYTEPS_CONNECT_TIMEOUT_S": "30"}

PLAIN = """
import sys
import numpy as np, byteps as bps
bps.init()
total = bps.push_pull(np.full(9, 4.0**bps.rank()), average=False, name="x")
sys.stdout.write(f"{bps.rank()} {bps.local_rank()} {bps.size()} {total[0]}\\n")  # one write: lines stay whole
bps.shutdown()
bps.init()  # once more, at the same place
bps.barrier()
assert "torch" not in sys.modules
"""


def torchrun(folder: Path, master_port: str) -> subprocess.CompletedProcess[str]:
    script = folder / "plain.py"
    script.write_text(PLAIN)
    return subprocess.run(
        (*TORCHRUN, "--master-port", master_port, str(script)),
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def test_a_program_without_pytorch(tmp_path: Path) -> None:
    with here.reserve() as master:
        done = torchrun(tmp_path, str(master.getsockname()[1]))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 0 2 5.0", "1 1 2 5.0"]


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with here.reserve() as master:
        master_port = str(master.getsockname()[1])
        # What torchrun will set, as far as it is the same for all ranks.
        known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": master_port, "TORCHELASTIC_RUN_ID": "none"}
        known |= {"TORCHELASTIC_RESTART_COUNT": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        port = adopted({**known, "RANK": "0", "LOCAL_RANK": "0"})["DMLC_PS_ROOT_PORT"]
        with socket.create_server(("127.0.0.1", int(port))):
            done = torchrun(tmp_path, master_port)
    assert done.returncode != 0
    assert f"127.0.0.1:{port}" in done.stderr and "DMLC_PS_ROOT_PORT" in done.stderr, done.stderr


# Two processes that only know their rank and a port. One dies; the other is told which.
LONELY = """
import os, sys, torch, torch.distributed as dist
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("byteps", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
tensor = torch.full((3,), 4.0**rank)
dist.all_reduce(tensor)
print(tensor.tolist(), flush=True)
if rank == 1:
    os._exit(7)
try:
    dist.all_reduce(tensor)
except Exception as error:
    print(type(error).__name__, error, flush=True)
os._exit(0)  # PyTorch's own goodbye would wait for the dead
"""


def test_no_launcher_at_all_and_a_rank_that_dies() -> None:
    with here.reserve() as master:
        ranks = [
            subprocess.Popen(
                (sys.executable, "-c", LONELY, str(rank), str(master.getsockname()[1])),
                env={**ENVIRONMENT, "BYTEPS_OP_TIMEOUT_S": "30"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            said = [rank.communicate(timeout=LIMIT_S)[0].splitlines() for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    assert [lines[0] for lines in said] == ["[5.0, 5.0, 5.0]"] * 2
    assert [rank.returncode for rank in ranks] == [0, 7]
    assert said[0][1].startswith("PeerLostError worker 1"), said[0]
