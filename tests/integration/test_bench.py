"""``bps bench`` end to end with tiny sizes: files, checked sums, goals; no number is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

RUN_TIMEOUT_S = 110


def _bench(output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run("push-pull", "--bound-shape", "1x65536x2", "--output", str(output), *arguments)


def _run(question: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "byteps.tools.cli", "bench", question, "--repeats", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    assert document["schema"] == 1
    assert document["machine"]["cores"] == len(os.sched_getaffinity(0))
    return document


def _has_plot(path: Path) -> bool:
    pytest.importorskip("matplotlib")
    return path.read_bytes().startswith(b"\x89PNG")


def test_sizes_beside_gloo_and_the_bound(tmp_path: Path) -> None:
    done = _bench(tmp_path, "--sizes", "4K,1000004", "--workers", "1,2")
    assert done.returncode == 0, done.stderr
    document = _read(tmp_path / "push-pull.json")
    measured = {(one["workers"], one["nbytes"], one["peer"]): one for one in document["series"]}
    # Among one worker Gloo is not measured, and said so.
    expected = {(1, size, peer) for size in (4096, 1_000_004) for peer in ("byteps", "bound")}
    expected |= {(2, size, peer) for size in (4096, 1_000_004) for peer in ("byteps", "gloo", "bound")}
    assert set(measured) == expected
    assert "n/a" in done.stdout
    for one in measured.values():
        assert len(one["samples_s"]) == 2
        assert all(sample > 0 for sample in one["samples_s"])
        assert one["summary_s"]["median"] == pytest.approx(sum(one["samples_s"]) / 2)
    assert {(one["workers"], one["nbytes"]) for one in document["bound_tuning"]} == {
        (workers, size) for workers in (1, 2) for size in (4096, 1_000_004)
    }
    assert _has_plot(tmp_path / "push-pull.png")


def test_two_servers_share_the_bytes(tmp_path: Path) -> None:
    done = _bench(
        tmp_path, "--sizes", "300012", "--workers", "2", "--servers", "2", "--peers", "byteps,bound"
    )
    assert done.returncode == 0, done.stderr
    assert {one["servers"] for one in _read(tmp_path / "push-pull.json")["series"]} == {2}


def test_many_tensors_and_server_memory(tmp_path: Path) -> None:
    arguments = ["--many", "--tensors", "20", "--server-memory", "--rounds", "20", "--large-set", "16M"]
    done = _bench(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    many = _read(tmp_path / "push-pull-many.json")
    assert {one["peer"]: one["tensors"] for one in many["series"]} == {"byteps": 20, "gloo": 20, "bound": 20}
    assert "times as fast as Gloo (goal 10)" in done.stdout
    memory = _read(tmp_path / "push-pull-server-memory.json")
    assert memory["points"][-1]["rounds"] == 20
    assert memory["final"]["VmHWM"] > 0
    assert "grows by" in done.stdout
    assert _has_plot(tmp_path / "push-pull-many.png")
    assert _has_plot(tmp_path / "push-pull-server-memory.png")


def test_local_sizes_and_gradients_beside_gloo_and_memory(tmp_path: Path) -> None:
    arguments = ["--sizes", "4K,1000004", "--ranks", "2,3", "--gradients", "resnet50"]
    done = _run("local", *arguments, "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = _read(tmp_path / "local.json")
    measured = {(one["workers"], one["nbytes"], one["peer"]) for one in document["series"]}
    peers = ("byteps", "arena", "gloo", "bound")
    assert measured == {(n, size, peer) for n in (2, 3) for size in (4096, 1_000_004) for peer in peers}
    assert len(document["ratios"]) == 2 * 2 * 3
    assert [goal["target"] for goal in document["goals"]] == [20, 20]  # 4 KB with 2 ranks
    gradients = _read(tmp_path / "local-gradients.json")
    assert {one["peer"]: one["tensors"] for one in gradients["series"]} == {
        "byteps": 161,
        "arena": 161,
        "gloo": 4,
    }
    assert "gradients of resnet50, in the arena" in done.stdout
    assert _has_plot(tmp_path / "local.png")
    assert _has_plot(tmp_path / "local-gradients.png")


def test_start_up(tmp_path: Path) -> None:
    arguments = ("--framework", "numpy", "--ranks", "2", "--output", str(tmp_path))
    done = _run("startup", *arguments)
    assert done.returncode == 0, done.stderr
    document = _read(tmp_path / "startup.json")
    series = {one["peer"]: one for one in document["series"]}
    # torchrun is measured with PyTorch only
    assert series.keys() == {"python x1", "import byteps", "python", "imports", "byteps", "byteps+server"}
    assert all(len(one["samples_s"]) == len(one["samples_cpu_s"]) == 2 for one in series.values())
    assert len(document["goals"]) == 3 and "import byteps beyond python -c pass" in done.stdout
