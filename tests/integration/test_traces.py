"""Traces of real jobs: files where users expect them, one clock, causes before effects, whole steps only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from byteps.observe.merging import load
from byteps.observe.recording import Recording
from byteps.observe.ring import WHOLE, Event
from byteps.observe.rounds import steps
from byteps.testing import cluster
from byteps.testing.chrome_format import check

FIRST, LAST = 3, 5


def env_of(folder: Path, **more: str) -> dict[str, str]:
    return {
        "BYTEPS_TRACE_ON": "1",
        "BYTEPS_TRACE_DIR": str(folder),
        "BYTEPS_TRACE_START_STEP": str(FIRST),
        "BYTEPS_TRACE_END_STEP": str(LAST),
        **more,
    }


def by_script(count: int) -> int:
    import numpy as np

    import byteps as bps

    bps.init()
    for _ in range(count):
        handles = [
            bps.push_pull_async(np.ones(elements, np.float32), name=f"t{elements}")
            for elements in (100, 300_000)
        ]
        for handle in handles:
            bps.synchronize(handle)
        bps.step()
    return bps.rank()


def by_optimizer(count: int) -> int:
    import torch

    import byteps.torch as bps

    bps.init()
    model = torch.nn.Linear(64, 64)
    optimizer = bps.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
    return bps.rank()


def by_ddp(count: int) -> int:
    import torch

    import byteps.torch as bps
    from byteps.torch.parallel import DistributedDataParallel

    bps.init()
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    for _ in range(count):
        with model.no_sync():
            model(torch.ones(2, 64)).sum().backward()
        model(torch.ones(2, 64)).sum().backward()
    return bps.rank()


def check_causes(recordings: list[Recording]) -> int:
    """Of every piece in every round: sent, arrived, summed, answered, landed, in this order on one clock."""
    workers = {each.header.rank: each for each in recordings if each.header.role == "worker"}
    servers = {each.header.rank: each for each in recordings if each.header.role == "server"}
    seen: dict[tuple[int, int, int, int], dict[str, Event]] = defaultdict(
        dict
    )  # server, tensor, piece, round
    for number, server in servers.items():
        for event in server.events():
            if event.stage in ("arrived", "answered"):
                seen[number, event.tensor, event.piece, event.round][f"{event.stage} {event.peer}"] = event
            elif event.stage == "summed":
                seen[number, event.tensor, event.piece, event.round]["summed"] = event
    checked = 0
    for rank, worker in workers.items():
        for event in worker.events():
            if event.stage not in ("sent", "landed") or event.piece == WHOLE:
                continue
            there = seen.get((event.peer, event.tensor, event.piece, event.round))
            if there is None or "summed" not in there:
                continue
            if event.stage == "sent":
                assert event.at_ns <= there[f"arrived {rank}"].at_ns <= there["summed"].at_ns
            elif f"answered {rank}" in there:
                assert there["summed"].at_ns <= there[f"answered {rank}"].at_ns <= event.at_ns
                checked += 1
    return checked


@pytest.mark.parametrize("work", [by_script, by_optimizer, by_ddp], ids=["script", "optimizer", "ddp"])
def test_workers_and_servers_record_the_steps_that_were_asked_for(work: Any, tmp_path: Path) -> None:
    env = env_of(tmp_path, BYTEPS_ENABLE_IPC="0")
    with cluster(work, workers=2, servers=2, args=(LAST + 3,), env=env, deadline_s=60) as job:
        job.wait()
    names = sorted(path.name for path in tmp_path.glob("*.bpstrace"))
    assert names == ["server-0.bpstrace", "server-1.bpstrace", "worker-0.bpstrace", "worker-1.bpstrace"]
    recordings = load([tmp_path])
    assert check_causes(recordings) > 0
    phases = check(json.loads((tmp_path / "0" / "comm.json").read_text()))
    shown = [line["name"] for line in phases["X"] if line["name"].startswith("step ")]
    assert shown == [f"step {number}" for number in range(FIRST, LAST + 1)]
    assert {"push_pull", "queue", "wait"} <= {line["name"] for line in phases["X"]}


def test_ranks_of_one_machine_record_without_servers(tmp_path: Path) -> None:
    with cluster(by_script, nproc=2, args=(LAST,), env=env_of(tmp_path), deadline_s=60) as job:
        job.wait()
    for rank in (0, 1):
        phases = check(json.loads((tmp_path / str(rank) / "comm.json").read_text()))
        assert sum(line["name"] == "push_pull" for line in phases["X"]) == 2 * (LAST - FIRST + 1)
        assert any(line["name"] == "local" for line in phases["X"])


def test_a_job_that_ends_early_leaves_what_it_has(tmp_path: Path) -> None:
    env = env_of(tmp_path, BYTEPS_TRACE_END_STEP="1000")
    with cluster(by_script, workers=2, servers=1, args=(FIRST + 1,), env=env, deadline_s=60) as job:
        job.wait()
    workers = [each for each in load([tmp_path]) if each.header.role == "worker"]
    assert [each.header.last_step for each in workers] == [FIRST + 1, FIRST + 1]
    assert [step.number for step in steps(workers[0].events())][-1] == FIRST + 1


def test_bpslaunch_merges_and_bps_shows(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import numpy as np, byteps as bps\n"
        "bps.init()\n"
        "for _ in range(7):\n"
        "    bps.push_pull(np.ones(50_000, np.float32), name='gradient')\n"
        "    bps.step()\n"
    )
    folder = tmp_path / "traces"
    launcher = [sys.executable, "-m", "byteps.launcher", "--workers", "2", "--servers", "1"]
    steps_env = ["--env", f"BYTEPS_TRACE_START_STEP={FIRST}", "--env", f"BYTEPS_TRACE_END_STEP={LAST}"]
    command = [*launcher, *steps_env, "--trace", str(folder), sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert f"trace of 3 members: {folder / 'merged.json'}" in ended.stderr
    phases = check(json.loads((folder / "merged.json").read_text()))
    members = {line["args"]["name"].split(" (")[0] for line in phases["M"] if line["name"] == "process_name"}
    assert members == {"worker 0", "worker 1", "server 0"}
    assert phases["s"] and phases["t"] and phases["f"] and phases["C"]
    shown = subprocess.run(
        [sys.executable, "-m", "byteps.tools.cli", "trace", "show", str(folder)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    assert "steps: 6, median" in shown
    assert "gradient" in shown and "last to arrive: rank" in shown
