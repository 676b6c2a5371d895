"""The public surface: which names there are, and what importing them costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from test_horovod_docs import TORCH as HOROVOD_NAMES

import byteps
import byteps.errors

ROOT = Path(__file__).parents[2]

VERBS = [
    "barrier",
    "broadcast",
    "counters",
    "declare",
    "empty",
    "get_pushpull_speed",
    "init",
    "is_initialized",
    "join",
    "join_context",
    "local_rank",
    "local_size",
    "poll",
    "push_pull",
    "push_pull_async",
    "rank",
    "resume",
    "shutdown",
    "size",
    "step",
    "suspend",
    "synchronize",
]
TORCH_VERBS = [
    "CommHookState",
    "Compression",
    "DistributedOptimizer",
    "broadcast_async",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "byteps_push_pull",
    "empty",
    "empty_like",
    "push_pull_async_inplace",
    "push_pull_hook",
    "push_pull_inplace",
]


def test_the_names_of_byteps() -> None:
    expected = {*VERBS, *byteps.errors.__all__, "Handle", "__version__"}
    assert sorted(byteps.__all__) == sorted(expected)
    assert all(hasattr(byteps, name) for name in expected)
    assert expected <= set(dir(byteps))


def test_the_names_of_byteps_torch() -> None:
    import byteps.torch

    expected = {*VERBS, *TORCH_VERBS, "Handle"} | {*HOROVOD_NAMES} - {"elastic"}
    assert sorted(byteps.torch.__all__) == sorted(expected)
    assert all(hasattr(byteps.torch, name) for name in expected)


def test_a_wrong_name_is_an_attribute_error() -> None:
    assert not hasattr(byteps, "pushpull")


def test_every_public_function_says_what_it_does() -> None:
    import byteps.torch

    for module in (byteps, byteps.torch):
        for name in module.__all__:
            if name != "__version__":
                assert getattr(module, name).__doc__, f"{module.__name__}.{name}"


def test_the_version_is_written_once_and_is_that_of_what_is_installed() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text and not re.search(r"^version *=", text, re.MULTILINE)
    assert metadata.version("byteps-train") == byteps.__version__


def test_nobody_is_told_to_install_another_project_of_the_same_name() -> None:
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("docker/*"),
    ]
    told = re.compile(r"pip install (-\S+ )*'?\"?byteps(?!-train)\b")
    found = [str(path) for path in texts if told.search(path.read_text())]
    assert len(texts) > 100 and found == []


def loaded_after(program: str) -> set[str]:
    """Names of the modules that a fresh interpreter has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


HEAVY = {"numpy", "torch", "asyncio", "msgspec", "byteps._core"}


def test_import_is_light() -> None:
    assert not HEAVY & loaded_after("import byteps")


def test_a_job_of_one_needs_no_network_and_no_core() -> None:
    assert not HEAVY & loaded_after("import byteps; byteps.init(); byteps.barrier(); byteps.shutdown()")


def test_numpy_comes_with_the_first_array_operation() -> None:
    found = loaded_after("import byteps; byteps.init(); byteps.push_pull(b'ab')")
    assert HEAVY & found == {"numpy"}


@pytest.mark.parametrize(
    "module", ["plugin/verbs", "torch/differentiable", "plugin/tensorflow/ops", "mxnet/ops", "jax/ops"]
)
def test_push_pull_tells_how_integers_are_averaged(module: str) -> None:
    """Read and not imported: not every framework is installed."""
    tree = ast.parse((Path(byteps.__file__).parent / f"{module}.py").read_text())
    (found,) = [
        ast.get_docstring(each) or ""
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and each.name == "push_pull"
    ]
    assert "Averages of integers are rounded toward zero" in " ".join(found.split())
