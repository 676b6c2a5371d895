"""The flight recorder: on a stall, a loss, SIGUSR2 and ``bps dump`` members write their last seconds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from byteps.observe.merging import load
from byteps.testing import cluster


def work(folder: str, silent_rank: int) -> str:
    """Push ``late``, one rank only when it may; returns what went wrong, with its notes."""
    import numpy as np

    import byteps as bps

    bps.init()
    bps.push_pull(np.ones(1_000, np.float32), name="first")
    Path(folder, f"ready {bps.rank()}").touch()
    try:
        if bps.rank() == silent_rank:
            while not Path(folder, "go on").exists():
                time.sleep(0.01)
        bps.push_pull(np.ones(1_000, np.float32), name="late")
    except bps.BytePSError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", ())])
    return ""


def until(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.01)


def ready(folder: Path) -> None:
    until(lambda: len(list(folder.glob("ready *"))) == 2, "both ranks are ready")


def written(folder: Path, by: set[str]) -> None:
    """Wait until these members, and no others, have written."""
    until(lambda: _members(folder) >= by, f"files of {by} in {folder}")
    assert _members(folder) == by


def _members(folder: Path) -> set[str]:
    return {"-".join(path.name.split("-")[1:3]) for path in folder.glob("*.bpstrace")}


def env_of(folder: Path, **more: str) -> dict[str, str]:
    return {"BYTEPS_FLIGHT_S": "30", "BYTEPS_FLIGHT_DIR": str(folder), **more}


EVERYBODY = {"worker-0", "worker-1", "server-0"}


def test_a_stall_is_written_down_by_everybody(tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    env = env_of(folder, BYTEPS_STALL_WARN_S="0.5")
    with cluster(work, workers=2, servers=1, args=(str(tmp_path), 1), env=env, deadline_s=60) as job:
        written(folder, EVERYBODY)
        (tmp_path / "go on").touch()
        assert job.wait() == ["", ""]
    recordings = {f"{each.header.role}-{each.header.rank}": each for each in load([folder])}
    first = recordings["worker-0"].header
    assert "late" in first.reason and "worker 1" in first.reason
    late = next(number for number, name in first.tensors.items() if name == "late")
    events = recordings["server-0"].events()
    assert [e.peer for e in events if e.stage == "arrived" and e.tensor == late] == [0]  # rank 1 is missing


def test_sigusr2_asks_one_process(tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    env = env_of(folder)
    with cluster(work, workers=2, servers=1, args=(str(tmp_path), 1), env=env, deadline_s=60) as job:
        ready(tmp_path)
        for process in (job.workers[0], job.servers[0]):  # the worker waits inside the core
            os.kill(process.pid, signal.SIGUSR2)
        written(folder, {"worker-0", "server-0"})
        (tmp_path / "go on").touch()
        assert job.wait() == ["", ""]


def test_a_loss_is_written_down_and_the_error_says_where(tmp_path: Path) -> None:
    folder = tmp_path / "flight"
    env = env_of(folder)
    with cluster(work, workers=2, servers=1, args=(str(tmp_path), 1), env=env, deadline_s=60) as job:
        ready(tmp_path)
        os.kill(job.workers[1].pid, signal.SIGKILL)
        told = job.wait(check=False)[0]
    assert "worker 1" in told
    (path,) = folder.glob("flight-worker-0-*.bpstrace")
    if sys.version_info >= (3, 11):
        assert told.endswith(f"the last seconds of this process are in {path}")
    assert load([path])[0].header.tensors


def test_bps_dump_asks_everybody(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.py", tmp_path / "flight"
    script.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_flight\n"
        f"assert test_flight.work({str(tmp_path)!r}, 1) == ''\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    env = {**os.environ, **env_of(folder), "BYTEPS_JOB_SECRET": "secret", "BYTEPS_JOB_ID": "flight"}
    launcher = [sys.executable, "-m", "byteps.launcher", "--scheduler-port", port, "--workers", "2"]
    with subprocess.Popen([*launcher, sys.executable, str(script)], env=env) as job:
        try:
            ready(tmp_path)
            dump = [sys.executable, "-m", "byteps.tools.cli", "dump", f"127.0.0.1:{port}"]
            asked = subprocess.run(dump, env=env, capture_output=True, text=True, timeout=30, check=False)
            assert "asked 3 members" in asked.stdout, asked
            written(folder, EVERYBODY)
        finally:
            (tmp_path / "go on").touch()
            assert job.wait(timeout=30) == 0
