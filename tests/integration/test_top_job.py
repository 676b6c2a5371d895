"""``bps top`` on a real job: it names the rank that is late, from outside, while the job runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = """
import time, pathlib, numpy as np, byteps as bps
bps.init()
pathlib.Path({folder!r}, f"ready {{bps.rank()}}").touch()
while True:
    if bps.rank() == 1:
        time.sleep(0.05)
    bps.push_pull(np.ones(1000, np.float32), name="gradient")
    stop = bps.push_pull(np.array([pathlib.Path({folder!r}, "enough").exists()], np.float32), name="stop")
    bps.step()
    if stop[0] > 0:
        break
"""


def test_it_names_the_rank_that_is_late(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(tmp_path)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    env = {**os.environ, "BYTEPS_JOB_SECRET": "secret", "BYTEPS_JOB_ID": "top"}
    launcher = [sys.executable, "-m", "byteps.launcher", "--scheduler-port", port, "--workers", "2"]
    with subprocess.Popen([*launcher, sys.executable, str(script)], env=env) as job:
        try:
            end = time.monotonic() + 30
            while len(list(tmp_path.glob("ready *"))) < 2:
                assert time.monotonic() < end
                time.sleep(0.02)
            top = [sys.executable, "-m", "byteps.tools.cli", "top", f"127.0.0.1:{port}", "--json"]
            seen = subprocess.run(top, env=env, capture_output=True, text=True, timeout=30, check=False)
            assert seen.returncode == 0, seen
        finally:
            (tmp_path / "enough").touch()
            assert job.wait(timeout=30) == 0
    found = json.loads(seen.stdout)
    assert found["slowest"] == 1
    members = {(each["role"], each["rank"]): each for each in found["members"]}
    assert set(members) == {("worker", 0), ("worker", 1), ("server", 0)}
    assert members["worker", 0]["steps"] > 1
    assert members["worker", 0]["waiting"] > 0.3
