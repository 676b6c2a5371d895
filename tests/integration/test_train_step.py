"""``benchmarks/train_step.py`` with tiny networks: all methods train, files appear; nothing is judged."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import byteps.torch as bps
from byteps.tools.bench.series import Series

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "train_step.py"
RUN_TIMEOUT_S = 110
METHODS = ["alone", "ddp-gloo", "optimizer", "ddp", "cross-barrier", "ddp-alone"]


def test_every_method_trains(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--tiny", "--repeats", "2", "--networks", "transformer"]
    command += ["--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "train-step.json").read_text())
    of_network: dict[str, list[str]] = {}
    for one in document["series"]:
        assert len(one["samples_s"]) == 2 and min(one["samples_s"]) > 0
        of_network.setdefault(one["notes"]["network"], []).append(one["peer"])
    hook = ["hook"] if hasattr(bps, "CommHookState") else []
    assert sorted(of_network.pop("transformer")) == sorted(METHODS + hook)
    assert of_network == {"small": ["alone", "optimizer", "python"]}
    assert "step " in done.stdout and "us of Python for each parameter" in done.stdout
    pytest.importorskip("matplotlib")
    assert (tmp_path / "train-step.png").read_bytes().startswith(b"\x89PNG")


def load() -> Any:
    spec = importlib.util.spec_from_file_location("train_step", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def series(peer: str, samples_s: list[float]) -> Series:
    return Series(peer, 2, 0, 1000, 1, samples_s=samples_s, tensors=10)


def test_the_cost_of_communication_is_what_it_adds_to_a_step() -> None:
    measured = [series("alone", [1.0, 2.0]), series("ddp-gloo", [2.0, 4.0]), series("ddp", [1.25, 2.5])]
    cost, step = load().judged("linear", measured)
    assert (cost.actual, cost.goal.target, cost.reached) == (0.25, 0.4, True)
    assert (step.actual, step.goal.target, step.reached) == (0.625, 1.02, True)


def test_the_cost_of_a_hook_is_what_it_adds_to_a_backward_pass() -> None:
    alone, whole = series("alone", [1e-3, 2e-3]), series("optimizer", [1.2e-3, 2.2e-3])
    (verdict,) = load().hook_cost([alone, whole, series("python", [1.1e-3, 2.1e-3])])
    assert verdict.actual == pytest.approx(10.0) and verdict.reached
    assert "20.0 us with the core's work" in verdict.line()
