"""The plugins of the frameworks in this environment: a suite is one job, and each of its checks a test."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from byteps.testing import ClusterError
from byteps.testing.checks import outcomes_of, require

HERE = Path(__file__).parent


class Suite(NamedTuple):
    """A module of checks, and what it needs."""

    module: str
    needs: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_here(self) -> bool:
        return all(importlib.util.find_spec(name) is not None for name in self.needs)

    @property
    def checks(self) -> list[str]:
        """Names of its checks, found without loading a framework."""
        tree = ast.parse((HERE / f"{self.module}.py").read_text())
        return [
            each.name
            for each in tree.body
            if isinstance(each, ast.FunctionDef)
            and any(isinstance(by, ast.Name) and by.id.startswith("check") for by in each.decorator_list)
        ]


def _on(backend: str) -> Suite:
    return Suite("keras_checks", ("keras", backend), (("KERAS_BACKEND", backend),))


SUITES = {
    "tensorflow": Suite("tensorflow_checks", ("tensorflow",)),
    "tensorflow training": Suite("tensorflow_training_checks", ("tensorflow",)),
    "mxnet": Suite("mxnet_checks", ("mxnet",)),
    "jax": Suite("jax_checks", ("jax",)),
    "keras on tensorflow": _on("tensorflow"),
    "keras on torch": _on("torch"),
    "keras on jax": _on("jax"),
}
CASES = [(name, check) for name, suite in SUITES.items() if suite.is_here for check in suite.checks]
ENVIRONMENT = {
    "BYTEPS_OP_TIMEOUT_S": "30",
    "BYTEPS_CONNECT_TIMEOUT_S": "60",
    "BYTEPS_MIN_COMPRESS_BYTES": "0",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
}


def worker(module: str) -> dict[str, str]:
    """The outcome of every check, as text."""
    import byteps

    suite = importlib.import_module("frame_suite")
    importlib.import_module(module)
    outcomes: dict[str, str] = suite.check_before_init.run(lambda: None)
    byteps.init()
    return {**outcomes, **suite.check.run(byteps.barrier)}


@functools.cache
def outcomes(name: str) -> list[dict[str, str]] | ClusterError:
    suite = SUITES[name]
    environment = {**ENVIRONMENT, **dict(suite.environment)}
    return outcomes_of(worker, workers=2, servers=1, args=(suite.module,), env=environment, deadline_s=170)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("suite", "check"), CASES)
def test_plugin(suite: str, check: str) -> None:
    require(outcomes(suite), check)


PLUGINS = ("torch", "tensorflow", "mxnet", "jax")
OTHERS = {"torch", "tensorflow", "mxnet", "jax", "keras"}


@pytest.mark.parametrize("plugin", [name for name in PLUGINS if importlib.util.find_spec(name) is not None])
def test_a_plugin_loads_its_own_framework_only(plugin: str) -> None:
    import subprocess

    program = f"import byteps.{plugin}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    loaded = set(done.stdout.split())
    # TensorFlow itself loads Keras and, through ml_dtypes, nothing else of these.
    allowed = {plugin, "keras"} if plugin == "tensorflow" else {plugin}
    assert loaded & OTHERS <= allowed
    assert not {f"byteps.{each}" for each in OTHERS - {plugin}} & loaded
