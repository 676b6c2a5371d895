"""``benchmarks/lab`` in its short form: right sums, right bytes on the links; no time is judged."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from byteps.tools.lab.network import why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "can be built here")

FOLDER = Path(__file__).parents[2] / "benchmarks" / "lab"
MXNET_PYTHON = FOLDER.parents[1] / ".venv-mxnet" / "bin" / "python"
RUN_TIMEOUT_S = 110


def run(name: str, folder: Path, *options: str) -> dict[str, Any]:
    """The result file of a tiny run. Every sample checks its sums, so a run that ends well had them right."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--tiny", "--output", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads((folder / f"lab-{name}.json").read_text())
    assert document["settings"]["load_at_start"] and document["machine"]["cores"]
    if importlib.util.find_spec("matplotlib"):
        assert (folder / f"lab-{name}.png").read_bytes().startswith(b"\x89PNG")
    return document


def test_every_link_carries_its_share(tmp_path: Path) -> None:
    document = run("theory", tmp_path, "--cases", "2+1,4+4")
    ours = {one["notes"]["case"]: one for one in document["series"] if one["peer"] == "byteps"}
    assert list(ours) == ["2+1", "4+4"]
    for one in ours.values():
        hosts = one["notes"]["over_shares"]
        assert len(hosts) == one["workers"] + one["notes"]["k"]
        # Headers, and on a busy machine a little that is sent twice; never less than theory.
        assert all(0.99 < each < 1.15 for pair in hosts.values() for each in pair), hosts
        assert min(one["notes"]["cpu_s_per_gb"]) > 0 and one["notes"]["resent_per_round"] >= 0
    assert {one["peer"] for one in document["series"]} == {"byteps", "gloo"}
    assert len(document["goals"]) == 2


def test_gradients_of_a_network_on_links_of_another_make(tmp_path: Path) -> None:
    links = ["--rates", "2000", "--mtu", "9000", "--queues", "10", "--hostname", "clone"]
    document = run(
        "theory",
        tmp_path,
        "--cases",
        "2+2",
        "--loads",
        "1M,resnet50",
        "--repeats",
        "1",
        "--inner",
        "1",
        *links,
    )
    found = [(one["notes"]["load"], one["peer"], one["tensors"]) for one in document["series"]]
    expected = [("1M", "byteps", 1), ("1M", "gloo", 1), ("resnet50", "byteps", 161), ("resnet50", "gloo", 4)]
    assert found == expected
    notes = document["series"][0]["notes"]
    assert (notes["mtu"], notes["queue_ms"], notes["one_name"]) == (9000, 10, "clone")


@pytest.mark.parametrize("mxnet", [False, True])
def test_a_step_of_training_beside_ddp_and_kvstore(mxnet: bool, tmp_path: Path) -> None:
    if mxnet and not MXNET_PYTHON.exists():
        pytest.skip(f"no {MXNET_PYTHON}: make test-mxnet makes it")
    python = MXNET_PYTHON if mxnet else tmp_path / "nowhere"
    document = run("step", tmp_path, "--mxnet", str(python), "--repeats", "1")
    methods = ["alone", "ddp-gloo", "optimizer", "cross-barrier", *(["kvstore"] if mxnet else [])]
    assert [one["peer"] for one in document["series"]] == methods
    assert all(min(one["samples_s"]) > 0 for one in document["series"])


@pytest.mark.parametrize("servers", [0, 2])
def test_a_simulated_step_ends_with_the_right_parameters(servers: int, tmp_path: Path) -> None:
    options = ["--networks", "alexnet", "--gbit", "10", "--repeats", "1", "--servers", str(servers)]
    document = run("overlap", tmp_path, *options)
    methods = ["alone", "ddp-gloo", "fifo", "priority", "cross-barrier"]
    assert [one["peer"] for one in document["series"]] == methods
    assert all(one["tensors"] == 16 and min(one["samples_s"]) > 0 for one in document["series"])
    assert {one["servers"] for one in document["series"]} == {servers}
    assert len(document["goals"]) == 2


def test_compressed_training_saves_the_bytes(tmp_path: Path) -> None:
    chosen = "uncompressed,fp16,dist-EF-SGDM,topk k=0.01"
    document = run("compression", tmp_path, "--settings", chosen, "--repeats", "1")
    slow = {one["peer"]: one["notes"] for one in document["series"] if one["notes"]["rate_mbit"] == 100}
    saved = {name: notes["bytes_saved"] for name, notes in slow.items()}
    assert saved["uncompressed"] == 1 and saved["fp16"] == pytest.approx(2, rel=0.02)
    assert 20 < saved["dist-EF-SGDM"] < 32 and 30 < saved["topk k=0.01"] < 100
    assert all(10 < notes["accuracies"][0] <= 100 for notes in slow.values())


def test_one_and_two_workers(tmp_path: Path) -> None:
    document = run("scaling", tmp_path)
    assert [(one["workers"], one["servers"]) for one in document["series"]] == [(1, 1), (2, 2)]
    assert [goal["line"].split(":")[0] for goal in document["goals"]] == ["2 workers"]
