"""The guide to the backend: its scripts train, with real clients of torch.distributed, as it says."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from byteps.launcher import here

PAGE = Path(__file__).parents[2] / "docs" / "pytorch-backend.md"
TEXT = PAGE.read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.S))
COMMANDS = [line for line in re.findall(r"^(?:bpslaunch|torchrun) .*$", TEXT, re.M) if "--nnodes" not in line]
PROGRAMS = {
    "bpslaunch": (sys.executable, "-m", "byteps.launcher"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
    "python": (sys.executable,),
}


def test_every_script_has_a_command() -> None:
    assert {word for command in COMMANDS for word in command.split() if word.endswith(".py")} == set(SCRIPTS)


def test_every_link_leads_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (PAGE.parent / link).exists(), link


@pytest.mark.parametrize("command", COMMANDS)
def test_the_script_trains(command: str, tmp_path: Path) -> None:
    for client in ("accelerate", "lightning"):
        if client in command and importlib.util.find_spec(client) is None:
            pytest.skip(f"{client} is not installed; requirements/test.txt has it")
    for name, script in SCRIPTS.items():
        (tmp_path / name).write_text(script)
    argv = [part for word in command.split() for part in PROGRAMS.get(word, (word,))]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "BYTEPS_OP_TIMEOUT_S": "30",
        "BYTEPS_CONNECT_TIMEOUT_S": "60",
        "BYTEPS_LOG_LEVEL": "INFO",
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
    }
    with here.reserve() as master:
        environment["PET_MASTER_PORT"] = str(master.getsockname()[1])  # torchrun's 29500 may be in use
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=110,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # Ranks write a line and its end apart, so that two lines may come as one.
    said = sorted(re.findall(r"rank \d of 2: \d+\.\d{3}", done.stdout))
    assert said == ["rank 0 of 2: 8.000", "rank 1 of 2: 8.000"], f"{done.stdout}\n{done.stderr}"
    assert "the job is complete" in done.stdout + done.stderr  # so it was our backend that they used
