"""One failure, one paragraph: what the culprit said, once, and one line; the rest is in the log files."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from launch_job import Job, bpslaunch, run, supervise

SHAPES = {"ranks": ("-n", "3"), "servers": ("--workers", "3", "--servers", "2")}

# As a new user would write them.
TYPO = """
import numpy as np
import byteps as bps

bps.init()
bps.push_pull(np.ones(4, np.float32), name="g", compression_params={"compressor": "onebitt"})
"""
NAN = """
import numpy as np
import byteps as bps

bps.init()
for step in range(1000000):
    bps.push_pull(np.ones(4, np.float32), name="g")
    if bps.rank() == 1 and step == 20:
        print("a last number: 7", flush=True)
        raise ValueError("loss is nan")
"""
FOR_EVER = """
import numpy as np
import byteps as bps

bps.init()
for step in range(100000000):
    bps.push_pull(np.ones(4, np.float32), name="g")
    if step == 20:
        print("trains", flush=True)
"""
# Both print a traceback and only one of them ends with it.
LOGGED = "Traceback (most recent call last):\\n  File x\\nKeyError: 1\\n"


def script(folder: Path, text: str) -> tuple[str, str]:
    (folder / "train.py").write_text(text)
    return "python", str(folder / "train.py")


def paragraph(job: Job) -> tuple[list[str], str]:
    """The lines of the job's standard error, and the last one; there is one traceback, of one process."""
    *lines, last = job.said.splitlines()
    assert sum("Traceback (most recent call last)" in line for line in lines) == 1, job.said
    assert len({line.partition("]")[0] for line in lines}) == 1, job.said
    return lines, last


@pytest.mark.parametrize("shape", SHAPES)
def test_a_typo_in_every_rank_is_told_once(shape: str, tmp_path: Path) -> None:
    job = run(bpslaunch(*SHAPES[shape], *script(tmp_path, TYPO)))
    assert job.process.returncode == 1
    lines, last = paragraph(job)
    assert re.search(r"worker \d exited with code 1: ValueError: .*'onebitt': valid values are ", last)
    assert len(lines) <= 15, job.said  # most of it is ours, and none of interest


@pytest.mark.parametrize("shape", SHAPES)
def test_who_only_noticed_is_silent_and_its_log_is_not(shape: str, tmp_path: Path) -> None:
    command = script(tmp_path, NAN)
    job = run(bpslaunch(*SHAPES[shape], *command))
    lines, last = paragraph(job)
    assert lines[0] == "[worker 1] Traceback (most recent call last):"
    assert lines[-1] == "[worker 1] ValueError: loss is nan"
    assert re.search(r" s: worker 1 exited with code 1: ValueError: loss is nan \(what \d others said", last)
    assert job.lines("worker 1") == ["a last number: 7"]

    logs = tmp_path / "logs"
    job = run(bpslaunch("--log-dir", str(logs), *SHAPES[shape], *command))
    _, last = paragraph(job)
    assert last.endswith(f"worker 1 exited with code 1: ValueError: loss is nan; logs in {logs}")
    for other in ("worker-0.log", "worker-2.log"):
        assert "PeerLostError: worker 1 " in (logs / other).read_text()

    job = run(bpslaunch(*SHAPES[shape], *command, BYTEPS_LOG_LEVEL="INFO"))
    assert job.said.count("Traceback (most recent call last)") >= 3
    assert "after it, " in job.said.splitlines()[-1]


@pytest.mark.parametrize("shape", SHAPES)
def test_ctrl_c_is_one_line(shape: str, tmp_path: Path) -> None:
    with bpslaunch(*SHAPES[shape], *script(tmp_path, FOR_EVER)) as job:
        job.expect(r"(?s)trains.*trains.*trains")
        job.send(signal.SIGINT)
        assert job.end() == 130
    assert re.fullmatch(r"bpslaunch: ended by SIGINT after [0-9.]+ s\n", job.said), job.said


def test_an_error_while_it_cleans_up_is_shown() -> None:
    code = "import time\ntry:\n  print('ready', flush=True); time.sleep(99)\nfinally:\n  print(1 / 0)"
    with supervise([("worker 0", ["python", "-c", code]), ("worker 1", "exec sleep 99")]) as job:
        job.expect("ready")
        job.send(signal.SIGINT)
        assert job.end() == 130
    assert "[worker 0] ZeroDivisionError: division by zero\n" in job.said


def test_a_traceback_that_was_only_logged_is_shown(tmp_path: Path) -> None:
    wait = f"while [ ! -e {tmp_path}/seen ]; do sleep 0.05; done"
    with supervise([("worker 0", f"printf '{LOGGED}'; echo after; {wait}"), ("worker 1", wait)]) as job:
        job.expect(r"\[worker 0\] Traceback(?s:.*)KeyError: 1\n\[worker 0\] after\n")  # while the job goes on
        (tmp_path / "seen").touch()
        assert job.end() == 0


@pytest.mark.parametrize(
    "words", [("python", "nosuch.py"), ("python", "-c", "import"), ("python", "-c", "1/0")]
)
def test_what_python_refuses_is_told_once(words: tuple[str, ...]) -> None:
    job = run(bpslaunch("-n", "4", *words))
    assert job.process.returncode in (1, 2)
    *lines, last = job.said.splitlines()
    assert lines and len({line.partition("]")[0] for line in lines}) == 1, job.said
    assert re.search(r"failed after .*: worker \d exited with code [12] \(what 3 others said of it", last)
