"""The README's commands and scripts do what it says, also from a plain ``pip install`` elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent


def first_script() -> str:
    (script,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "numpy" in block)
    return str(script)


def run(command: list[str], folder: Path, bin_folder: Path = BIN, timeout_s: float = 60) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("BYTEPS_", "DMLC_", "PS_"))}
    env["PATH"] = f"{bin_folder}:{env['PATH']}"
    env.pop("PYTHONPATH", None)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_first_script(folder: Path, bin_folder: Path) -> None:
    (folder / "first.py").write_text(first_script())
    alone, machine, servers = re.findall(r"^((?:python|bpslaunch) .*first\.py)", README, re.M)
    assert run(alone.split(), folder, bin_folder) == "rank 0 of 1: [0. 0. 0. 0.]\n"
    for job in (machine, servers):
        lines = run(job.split(), folder, bin_folder).splitlines()
        for rank in (0, 1):
            assert f"[worker {rank}] rank {rank} of 2: [0.5 0.5 0.5 0.5]" in lines


def test_the_first_script(tmp_path: Path) -> None:
    check_first_script(tmp_path, BIN)


def test_every_link_leads_somewhere() -> None:
    for name in (
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "benchmarks/PERFORMANCE.md",
        *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
    ):
        page = ROOT / name
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{name} links to {link}"


@pytest.mark.timeout(900)
def test_pip_install_into_an_empty_environment(tmp_path: Path) -> None:
    """No framework, no build tools of ours, nothing of the checkout on the path."""
    source = tmp_path / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    before = sorted(source.rglob("*"))
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    run([str(environment / "bin/pip"), "install", "--quiet", "."], source, environment / "bin", timeout_s=800)
    assert sorted(source.rglob("*")) == before  # a folder that somebody else owns will do, too
    shutil.rmtree(source)
    check_first_script(tmp_path, environment / "bin")
    assert "BYTEPS_PARTITION_BYTES" in run(["bps", "env"], tmp_path, environment / "bin")
    light = "import byteps, sys; assert not {'torch', 'numpy', 'asyncio'} & set(sys.modules)"
    run(["python", "-c", light], tmp_path, environment / "bin")
