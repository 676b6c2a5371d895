"""BYTEPS_ENABLE_GDB=1 with a real crash: a backtrace, the same exit code, and signals as without gdb."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from launch_job import bpslaunch, ended, run

from byteps.launcher.gdb import interpreter

needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")

CRASH = """
import ctypes, os, sys, threading
def here_it_goes_wrong():
    ctypes.string_at(0)
threading.Thread(target=threading.Event().wait, daemon=True).start()
if os.environ["BYTEPS_LOCAL_RANK"] == "1":
    here_it_goes_wrong()
threading.Event().wait()
"""


@needs_gdb
def test_a_crash_prints_all_threads_and_python_frames() -> None:
    job = run(bpslaunch("-n", "2", sys.executable, "-c", CRASH, BYTEPS_ENABLE_GDB="1"))
    assert job.process.returncode == 128 + signal.SIGSEGV
    text = job.out.decode() + job.said
    crashed = [line for line in text.splitlines() if line.startswith("[worker 1] ")]
    assert sum(line.startswith("[worker 1] Thread ") for line in crashed) >= 2
    assert any(line.startswith("[worker 1] #0 ") for line in crashed)
    assert any("in here_it_goes_wrong" in line for line in crashed)  # Python's own words
    assert "worker 1 was ended by SIGSEGV (code 139)" in job.said


@needs_gdb
def test_exit_codes_are_those_of_the_command() -> None:
    codes = {"exit 0": 0, "exit 7": 7, "kill -ABRT $$": 134, "kill -KILL $$": 137, "kill -TERM $$": 143}
    jobs = {script: bpslaunch("sh", "-c", script, BYTEPS_ENABLE_GDB="1") for script in codes}
    assert {script: run(job).process.returncode for script, job in jobs.items()} == codes


@needs_gdb
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_command_once(number: signal.Signals) -> None:
    code = (
        "import os, signal, sys\n"
        "got = []\n"
        f"signal.signal({int(number)}, lambda n, _: got.append(n))\n"
        "print('ready', os.getpid(), flush=True)\n"
        "while not got: signal.pause()\n"
        "signal.sigtimedwait([], 0.05)\n"
        "print('got', len(got), flush=True)\n"
        "sys.exit(9)\n"
    )
    with bpslaunch(sys.executable, "-c", code, BYTEPS_ENABLE_GDB="1") as job:
        pid = int(job.expect(r"ready (\d+)\n").group(1))
        job.send(number)
        assert job.end() == 128 + number
    assert ended(pid)
    assert b"got 1\n" in job.out


@needs_gdb
def test_arguments_and_environment_are_those_of_the_command() -> None:
    args = ["a b", "", "$HOME `x` 'q' \"d\" \\\\ * ! #", "line\nbreak"]
    code = "import os, sys; print(sys.argv[1:] == eval(os.environ['ARGS']), os.environ.get('SHELL'))"
    for shell in ("/bin/false", "/opt/my shell"):
        env = {"BYTEPS_ENABLE_GDB": "1", "ARGS": repr(args), "SHELL": shell}
        job = run(bpslaunch(sys.executable, "-c", code, *args, **env))
        assert f"True {shell}\n".encode() in job.out, (job.out, job.said)


@needs_gdb
def test_a_deaf_command_dies_with_gdb() -> None:
    deaf = "trap '' INT TERM; echo ready $$; while :; do sleep 1000; done"
    with bpslaunch("--grace", "0.2", "sh", "-c", deaf, BYTEPS_ENABLE_GDB="1") as job:
        pid = int(job.expect(r"ready (\d+)\n").group(1))
        job.send(signal.SIGTERM)
        assert job.end() == 143
    assert ended(pid)


@needs_gdb
def test_scripts_and_commands_that_are_not_there(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho script $1\nexit 5\n")
    script.chmod(0o755)
    job = run(bpslaunch(str(script), "runs", BYTEPS_ENABLE_GDB="1"))
    assert job.process.returncode == 5 and b"script runs\n" in job.out
    assert run(bpslaunch("no-such-command-here", BYTEPS_ENABLE_GDB="1")).process.returncode == 127


def test_without_gdb_it_says_what_to_install(tmp_path: Path) -> None:
    job = run(bpslaunch(sys.executable, "-c", "", BYTEPS_ENABLE_GDB="1", PATH=str(tmp_path)))
    assert job.process.returncode == 2
    assert "BYTEPS_ENABLE_GDB=1 needs gdb" in job.said and "apt-get install gdb" in job.said


def test_who_runs_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script"
    for line, words in {
        b"#!/usr/bin/env python3\n": ("/usr/bin/env", "python3"),
        b"#! /bin/sh -e -u\n": ("/bin/sh", "-e -u"),  # the kernel passes one argument
        b"\x7fELF": (),
        b"": (),
    }.items():
        script.write_bytes(line)
        assert interpreter(script) == words
    assert interpreter(Path(os.devnull) / "none") == ()
