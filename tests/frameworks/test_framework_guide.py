"""The guide to the frameworks: its scripts train on two ranks; its table names what there is."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from byteps.testing import cluster

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
TEXT = PAGE.read_text()
SCRIPTS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.S))
ENVIRONMENT = {
    "BYTEPS_OP_TIMEOUT_S": "30",
    "BYTEPS_CONNECT_TIMEOUT_S": "60",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
}


def needs(script: str) -> set[str]:
    """The modules that a script imports."""
    return set(re.findall(r"^(?:import|from) (\w+)", script, re.M))


def backend() -> str:
    """What Keras can run on in this environment."""
    return next(name for name in ("tensorflow", "torch", "jax") if importlib.util.find_spec(name) is not None)


HERE = [name for name, text in SCRIPTS.items() if all(importlib.util.find_spec(each) for each in needs(text))]


def test_every_framework_has_a_script() -> None:
    assert set(SCRIPTS) == {"tensorflow_step.py", "keras_fit.py", "mxnet_trainer.py", "jax_step.py"}


@pytest.mark.parametrize("name", HERE)
def test_the_script_trains(name: str, tmp_path: Path) -> None:
    script = tmp_path / name
    script.write_text(SCRIPTS[name])
    environment = {**ENVIRONMENT, **({"KERAS_BACKEND": backend()} if "keras" in name else {})}
    with cluster(script, nproc=2, env=environment, deadline_s=110) as job:
        job.wait()
        for rank, worker in enumerate(job.workers):
            assert f"rank {rank} of 2: trained, loss is finite: True" in worker.output, worker.output


MODULES = {"torch": "torch", "tensorflow": "tensorflow", "keras": "keras", "mxnet": "mxnet", "jax": "jax"}


@pytest.mark.parametrize("plugin", [name for name in MODULES if importlib.util.find_spec(name) is not None])
def test_every_name_of_the_plugin_is_there(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if plugin == "keras":
        monkeypatch.setenv("KERAS_BACKEND", backend())
    module = importlib.import_module(f"byteps.{plugin}")
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"byteps.{plugin}.{name}"
    for name in ("init", "shutdown", "rank", "size", "push_pull", "broadcast", "barrier"):
        assert name in module.__all__
