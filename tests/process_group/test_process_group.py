"""The backend ``byteps`` under every launcher: a job is started once for each, and runs all its checks.

Each check is a test of its own here, as in ``tests/conformance``.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from group_suite import check

from byteps.launcher import here
from byteps.testing.checks import OK

JOB = Path(__file__).parent / "group_job.py"
LIMIT_S = 110
BPSLAUNCH = (sys.executable, "-m", "byteps.launcher", "-n")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "60"}


def checks_of(*modules: str) -> list[str]:
    before = set(check)
    for module in modules:
        importlib.import_module(module)
    return [name for name in check if name not in before]


OPERATIONS = checks_of("group_push_pull_checks", "group_gloo_checks")
TRAINING = checks_of("group_training_checks")
SHARDING = checks_of("group_sharding_checks")
# name -> command, ranks, modules, checks
JOBS: dict[str, tuple[tuple[str, ...], int, tuple[str, ...], list[str]]] = {
    "bpslaunch -n 2": (
        (*BPSLAUNCH, "2", sys.executable),
        2,
        ("group_push_pull_checks", "group_gloo_checks", "group_training_checks", "group_sharding_checks"),
        OPERATIONS + TRAINING + SHARDING,
    ),
    "bpslaunch -n 3": (
        (*BPSLAUNCH, "3", sys.executable),
        3,
        ("group_push_pull_checks", "group_gloo_checks"),
        OPERATIONS,
    ),
    "torchrun": (
        (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        2,
        ("group_push_pull_checks", "group_gloo_checks", "group_training_checks"),
        OPERATIONS + TRAINING,
    ),
}


@functools.cache
def outcomes(job: str) -> list[dict[str, str]] | str:
    """What every rank says about every check, or why there is nothing to say."""
    command, ranks, modules, _ = JOBS[job]
    with tempfile.TemporaryDirectory() as folder, here.reserve() as master:
        port = str(master.getsockname()[1])  # torchrun's 29500 may be in use
        process = subprocess.Popen(
            (*command, str(JOB), folder, *modules),
            env={**os.environ, **ENVIRONMENT, "PET_MASTER_PORT": port},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # launchers end their ranks then
            output, _ = process.communicate(timeout=LIMIT_S)
        files = [Path(folder) / f"outcomes.{rank}.json" for rank in range(ranks)]
        if process.returncode != 0 or not all(file.exists() for file in files):
            return f"exit code {process.returncode}\n{output}"
        return [json.loads(file.read_text()) for file in files]


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize(("job", "check"), [(job, check) for job, row in JOBS.items() for check in row[3]])
def test_backend(job: str, check: str) -> None:
    found = outcomes(job)
    if isinstance(found, str):
        pytest.fail(found, pytrace=False)
    for rank, outcome in enumerate(found):
        assert outcome[check] == OK, f"rank {rank}: {outcome[check]}"
