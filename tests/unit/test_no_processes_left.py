"""The check in tests/conftest.py: a test that leaves a process behind fails, and the process is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"

TESTS = """
import subprocess

QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def test_child():
    subprocess.Popen(["sleep", "1000"], **QUIET)


def test_orphan():
    subprocess.run(["sh", "-c", "sleep 1001 & exit 0"], **QUIET, check=True)


def test_ended_but_not_waited_for():
    subprocess.Popen(["true"])


def test_tidy():
    subprocess.run(["true"], check=True)


def test_none():
    pass
"""


def test_children_and_orphans_are_found_and_ended(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text().replace("GRACE_S = 2.0", "GRACE_S = 0.3"))
    (tmp_path / "test_leaks.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rE", "-p", "no:cacheprovider", "test_leaks.py"]
    environ = os.environ | {"BYTEPS_TEST_SEED": "7"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert "5 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "sleep 1000" in done.stdout and "sleep 1001" in done.stdout
    errors = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    assert errors == ["ERROR test_leaks.py::test_child", "ERROR test_leaks.py::test_orphan"]
    # Each line of the report begins with the number of a process; none of them may run any more.
    found = {
        line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and "sleep" in line
    }
    assert len(found) == 2 and not any(runs(pid) for pid in found)


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
