"""``benchmarks/framework_step.py`` with few tensors: it runs in this environment, and files appear."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "framework_step.py"


def test_it_runs(tmp_path: Path) -> None:
    few = ["--frameworks", "torch", "--tensors", "3", "--nbytes", "4000", "--repeats", "2"]
    command = [sys.executable, str(SCRIPT), *few, "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (series,) = json.loads((tmp_path / "framework-step.json").read_text())["series"]
    assert series["peer"] == "torch" and len(series["samples_s"]) == 2 and min(series["samples_s"]) > 0
