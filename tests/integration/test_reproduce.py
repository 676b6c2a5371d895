"""``examples/reproduce``: its scripts run a job, with a tiny program and with the real one; data is read."""

from __future__ import annotations

import os
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "reproduce"
LIMIT_S = 100
PROGRAM = """
import os, sys
import numpy as np, byteps as bps
bps.init()
total = bps.push_pull(np.ones(1000) * (bps.rank() + 1), average=False, name="x")[0]
words = [bps.rank(), bps.size(), total, os.environ["BYTEPS_MIN_COMPRESS_BYTES"], *sys.argv[1:]]
bps.shutdown()
print("told", *words, flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home with the tools on its path, and a free port for the scheduler."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, words in (("bpslaunch", f"{sys.executable} -m byteps.launcher"), ("python3", sys.executable)):
        (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (tools / name).chmod(0o755)
    (tmp_path / "hosts").write_text("# two machines, played by one\n127.0.0.1 first\n127.0.0.2\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOSTS_FILE": str(tmp_path / "hosts"),
        "DMLC_PS_ROOT_PORT": str(port),
        "RANKS_PER_MACHINE": "1",
        "SERVERS_PER_MACHINE": "1",
        "BYTEPS_CONNECT_TIMEOUT_S": "60",
        "OMP_NUM_THREADS": "1",
    }


def test_run_on_two_machines(environment: dict[str, str], tmp_path: Path) -> None:
    """Two jobs after each other. Machines know themselves by their address; here a variable says it."""
    environment["PROGRAM"] = f"python3 {tmp_path / 'program.py'}"
    machines = [
        subprocess.Popen(
            [FOLDER / "run.sh", "cifar100-topk", "imagenet-resnet50-baseline"],
            env={**environment, "DMLC_WORKER_ID": str(index)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(2)
    ]
    outputs = [machine.communicate(timeout=LIMIT_S)[0] for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], outputs
    told = [line.split() for text in outputs for line in re.findall(r"told (.*)", text)]
    assert sorted(words[:4] for words in told) == sorted(
        [str(rank), "2", "3.0", "1024000"] for rank in (0, 0, 1, 1)
    )
    assert any("--compressor topk --k 0.001 --ef vanilla" in " ".join(words) for words in told)
    assert any("--model resnet50_v2" in " ".join(words) and "--lr 0.2" in " ".join(words) for words in told)


def test_a_failure_ends_everything_with_its_code(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1\n")
    (tmp_path / "program.py").write_text("import byteps as bps; bps.init(); raise SystemExit(7)")
    environment |= {"PROGRAM": f"python3 {tmp_path / 'program.py'}", "BYTEPS_FORCE_DISTRIBUTED": "1"}
    done = subprocess.run(
        [FOLDER / "run.sh", "cifar100-onebit", "cifar100-topk"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode != 0 and "start cifar100-topk" not in done.stdout, done.stdout + done.stderr
    wrong = subprocess.run(
        [FOLDER / "worker.sh", "cifar100-gzip"],
        env={**environment, "DMLC_WORKER_ID": "0"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert wrong.returncode == 2 and "no compressor in cifar100-gzip" in wrong.stderr


def test_the_command_of_the_readme_trains(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1\n")
    options = "--synthetic 32 --width 0.1 --loaders 0 --epochs 1 --batch-size 8"
    environment |= {"RANKS_PER_MACHINE": "2", "BYTEPS_FORCE_DISTRIBUTED": "1", "OPTIONS": options}
    done = subprocess.run(
        [FOLDER / "run.sh", "cifar100-onebit"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (tmp_path / "cifar100-onebit.log").read_text().splitlines()
    assert rows[0] == "epoch,accuracy,seconds" and re.fullmatch(r"1,[01]\.\d{4},\d+\.\d", rows[1])


@pytest.mark.parametrize("form", ["python", "binary"])
def test_cifar100_is_read(form: str, tmp_path: Path, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (5, 3072), dtype=np.uint8)
    fine, coarse = rng.integers(0, 100, 5, dtype=np.uint8), rng.integers(0, 20, 5, dtype=np.uint8)
    if form == "python":
        content = {b"data": images, b"fine_labels": fine.tolist(), b"coarse_labels": coarse.tolist()}
        (tmp_path / "test").write_bytes(pickle.dumps(content))
    else:
        records = np.concatenate([coarse[:, None], fine[:, None], images], axis=1)
        (tmp_path / "test.bin").write_bytes(records.tobytes())
    program = (
        "import sys; from pathlib import Path; from cifar100 import Cifar100; import torch\n"
        "data = Cifar100(Path(sys.argv[1]), 'test'); torch.save([data.images, data.labels], sys.argv[2])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(tmp_path / "found.pt")],
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    torch = pytest.importorskip("torch")
    found_images, found_labels = torch.load(tmp_path / "found.pt", weights_only=True)
    assert found_labels == fine.tolist() and (found_images.numpy().reshape(5, -1) == images).all()
