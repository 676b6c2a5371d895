"""docs/horovod.md names every public name of Horovod and every option of horovodrun, and tells the truth."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import byteps.torch
from byteps.errors import ConfigError
from byteps.launcher.horovodrun import OPTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "horovod.md").read_text()

# What ``horovod.torch`` of version 0.28 has.
TORCH = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]


def table(heading: str) -> dict[str, tuple[str, ...]]:
    """The cells behind each name in the first cell of a row."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found: dict[str, tuple[str, ...]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            names, *cells = (cell.strip() for cell in line.strip("|").split(" |"))
            for name in re.findall(r"`([^`]+)`", names):
                assert name not in found, f"{name} twice"
                found[name] = tuple(cells)
    return found


def test_every_name_is_in_the_table_once() -> None:
    assert sorted(table("PyTorch")) == sorted(TORCH)


@pytest.mark.parametrize("name", TORCH)
def test_it_is_what_the_table_says(name: str) -> None:
    here = table("PyTorch")[name][0]
    assert here in ("same", "differs", "answers", "refused")
    if here != "refused":
        assert name in byteps.torch.__all__ and getattr(byteps.torch, name).__doc__
    elif name in ("start_timeline", "stop_timeline"):
        with pytest.raises(ConfigError, match=name):
            getattr(byteps.torch, name)(*["t.json"][: name == "start_timeline"])
    elif name == "Adasum":
        with pytest.raises(ConfigError, match="Adasum"):
            byteps.torch.allreduce(None, op=byteps.torch.Adasum)  # type: ignore[arg-type]
    else:
        with pytest.raises(AttributeError, match=rf"{name} is not there.*docs/horovod.md"):
            getattr(byteps.torch, name)


def public(module: str) -> set[str]:
    """The names of a plugin, read and not imported: its framework may not be here."""
    tree = ast.parse((Path(byteps.torch.__file__).parents[1] / module / "__init__.py").read_text())
    lists = [
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and "__all__" in ast.dump(each.targets[0])
    ]
    return {word.value for each in lists for word in each.elts}  # type: ignore[attr-defined]


def test_the_other_frameworks_have_what_the_table_says() -> None:
    names = [
        name.removeprefix("hvd.")
        for name, cells in table("TensorFlow, Keras and MXNet").items()
        if cells[0] == "the same names"
    ]
    assert len(names) == 18
    everywhere = public("tensorflow") | public("keras") | public("mxnet")
    assert {name.removesuffix(".*") for name in names} <= everywhere
    for module in ("tensorflow", "keras", "mxnet"):
        assert {"init", "shutdown", "rank", "size", "local_rank", "local_size", "push_pull"} <= public(module)


def test_every_option_of_horovodrun_is_in_the_table() -> None:
    found = table("Options of `horovodrun`")
    assert {name: cells[0] for name, cells in found.items()} == {
        name: option.text() for name, option in OPTIONS.items()
    }
