"""The first hour of a new user: what is typed out of habit, and what bpslaunch answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from launch_job import Job, bpslaunch, run

PLAIN = "import os; print('lone', os.environ['RANK'])"
JOINS = "import byteps as bps; bps.init(); print('size', bps.size())"
SHOW = 'echo "$GIVEN $PWD $MASTER_PORT $DMLC_PS_ROOT_PORT"'


def test_a_script_in_place_of_a_command(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    job = run(bpslaunch("first.py"))
    assert job.process.returncode == 127 and "did you mean: bpslaunch python first.py\n" in job.said
    script.write_text("print(1)\n")
    job = run(bpslaunch("-n", "2", str(script)))
    assert job.process.returncode == 126 and f"did you mean: bpslaunch python {script}\n" in job.said


@pytest.mark.parametrize(
    ("args", "labels"),
    [
        (["-np", "2"], ["worker 0", "worker 1"]),
        (["--workers", "2"], ["worker 0", "worker 1"]),
        (["-H", "localhost:2"], ["worker 0@localhost", "worker 1@localhost"]),
        (["--nnodes", "1", "--node-rank", "0", "-n", "2"], ["worker 0", "worker 1"]),
    ],
)
def test_env_and_chdir_reach_every_process(args: list[str], labels: list[str], tmp_path: Path) -> None:
    job = run(bpslaunch(*args, "--env", "GIVEN=by option", "--chdir", str(tmp_path), "sh", "-c", SHOW))
    assert job.process.returncode == 0, job.said
    for label in labels:
        (line,) = job.lines(label)
        assert line.startswith(f"by option {tmp_path} ")


def test_ports_that_are_asked_for_are_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        root, master = str(one.getsockname()[1]), str(other.getsockname()[1])
        job = run(bpslaunch("-n", "2", "--scheduler-port", root, "true"))
        assert job.process.returncode == 2 and f"cannot use port {root} for the scheduler" in job.said
        assert "by process" in job.said
        job = run(bpslaunch("--master-port", master, "true"))
        assert job.process.returncode == 2 and f"cannot use port {master} for torch.distributed" in job.said
    words = ("--scheduler-port", root, "--master-port", master)
    script = JOINS + "; import os; print(os.environ['MASTER_PORT'], os.environ['DMLC_PS_ROOT_PORT'])"
    job = run(bpslaunch("-n", "2", *words, "python", "-c", script))
    assert job.process.returncode == 0, job.said
    assert job.lines("worker 1") == ["size 2", f"{master} {root}"]


def test_files_of_output_are_where_bpslaunch_was_called(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    shell = f"cd {tmp_path} && exec bpslaunch --log-dir logs --chdir work -n 2 pwd"
    job = run(Job(["/bin/sh", "-c", shell]))
    assert job.process.returncode == 0, job.said
    assert (tmp_path / "logs" / "worker-1.log").read_text() == f"{tmp_path}/work\n"


@pytest.mark.parametrize("args", [["-n", "2"], ["--workers", "2", "--servers", "1"], ["-H", "localhost:2"]])
def test_ranks_that_never_call_init_are_warned_about_once(args: list[str]) -> None:
    job = run(bpslaunch(*args, "python", "-c", PLAIN))
    assert job.process.returncode == 0, job.said
    assert job.said.count("warning: none of the 2 ranks called byteps.init()") == 1
    job = run(bpslaunch(*args, "python", "-c", JOINS))
    assert job.process.returncode == 0, job.said
    assert "warning" not in job.said


@pytest.mark.parametrize("args", [["python", "-c", PLAIN], ["-n", "2", "echo", "no Python"]])
def test_nobody_is_warned_who_need_not_be(args: list[str]) -> None:
    job = run(bpslaunch(*args))
    assert job.process.returncode == 0 and "warning" not in job.said


@pytest.mark.parametrize(
    "line",
    [
        "bps env",
        "bps --help",
        "bps env --help",
        "bpslaunch --help",
        "bpslaunch --dry-run -n 64 python train.py",
    ],
)
def test_a_reader_that_has_seen_enough_sees_no_traceback(line: str) -> None:
    for reader in ("head -1", "true"):
        job = run(Job(["/bin/sh", "-c", f"{line} | {reader}"]))
        assert job.process.returncode == 0 and job.said == ""


@pytest.mark.parametrize(
    "line",
    [
        "bpslaunch",
        "bps",
        *(f"bps {word}" for word in ("env", "doctor", "lab", "version", "bench")),
        *(f"bps bench {word}" for word in ("push-pull", "local", "compress", "startup")),
    ],
)
def test_help_is_plain_text_about_what_is_installed(line: str) -> None:
    job = run(Job([*line.split(), "--help"]))
    assert job.process.returncode == 0, job.said
    for sign in ("`", ".md", "docs/"):
        assert sign not in job.out.decode()


def test_every_variable_is_explained_without_other_files() -> None:
    job = run(Job(["bps", "env"]))
    for sign in ("`", ".md", "docs/"):
        assert sign not in job.out.decode()


def test_a_healthy_start_warns_of_nothing() -> None:
    """Ranks that take four seconds to load what they need, as with a large framework."""
    for args in (["-n", "2"], ["--workers", "2", "--servers", "1"]):
        job = run(bpslaunch(*args, "python", "-c", f"import time; time.sleep(4); {JOINS}"))
        assert job.process.returncode == 0
        assert "WARNING" not in job.said + job.out.decode()
