"""bpslaunch with real processes: exit codes, output, environment; most commands are a line of shell."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from launch_job import BPSLAUNCH, DRIVER, Job, bpslaunch, run, supervise

FORTY_LINES = "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done"


# ---- the command alone


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)],
)
def test_exit_code_of_a_command(script: str, code: int) -> None:
    job = run(bpslaunch("sh", "-c", script))
    assert job.process.returncode == code
    assert ("failed after" in job.said) == (code != 0)


def test_output_and_input_of_a_command_alone_are_left_alone() -> None:
    job = run(bpslaunch("sh", "-c", "cat; printf 'no end' >&2"), "typed\n")
    assert (job.out, job.err, job.process.returncode) == (b"typed\n", b"no end", 0)


@pytest.mark.parametrize("devices", ["0", "0,1"])
def test_closed_standard_streams_are_no_trouble(devices: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    env = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "NVIDIA_VISIBLE_DEVICES": devices}
    script = f"cat; echo to nobody; touch {mark}; exit 4"
    job = Job(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *BPSLAUNCH, "sh", "-c", script], **env)
    assert run(job).process.returncode == 4
    assert mark.exists()


def test_options_end_at_the_command() -> None:
    job = run(bpslaunch("echo", "--workers", "2", "--dry-run", "-h"))
    assert job.out == b"--workers 2 --dry-run -h\n"
    job = run(bpslaunch("--", "echo", "--", "x"))
    assert job.out == b"-- x\n"


def test_a_job_of_one_is_said_when_asked_for() -> None:
    assert "job of one" in run(bpslaunch("true", BYTEPS_LOG_LEVEL="INFO")).said
    assert run(bpslaunch("true")).said == ""


def test_command_not_found_and_not_executable(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program\n")
    job = run(bpslaunch("no-such-command-here"))
    assert job.process.returncode == 127
    assert "worker 0: command not found: 'no-such-command-here'" in job.said
    job = run(bpslaunch(str(plain)))
    assert job.process.returncode == 126
    plain.chmod(0o755)
    assert run(bpslaunch(str(plain))).process.returncode == 126  # executable now, but no program
    job = run(supervise([("server 0", "exec sleep 1000"), ("worker 0", ["no-such-command-here"])]))
    assert job.process.returncode == 127


# ---- wrong use and dry run


@pytest.mark.parametrize(
    ("args", "env", "word"),
    [
        ([], {}, "nothing to run"),
        (["--wrokers", "2", "true"], {}, "--wrokers"),
        (["--workers", "two", "true"], {}, "--workers"),
        (["--workers", "2", "--servers", "0", "true"], {}, "--servers 1"),
        (["-n", "0", "true"], {}, "--nproc 0: expected at least 1 rank"),
        (["--nproc", "2"], {}, "nothing to run"),
        (["true"], {"DMLC_ROLE": "worker"}, "DMLC_NUM_WORKER is not set"),
        ([], {"DMLC_ROLE": "server"}, "DMLC_NUM_WORKER is not set"),
        ([], {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": "2"}, "DMLC_PS_ROOT_URI is not set"),
        (["true"], {"BYTEPS_PARTITION_BYTES": "many"}, "BYTEPS_PARTITION_BYTES='many'"),
    ],
)
def test_wrong_use_is_2_and_says_why(args: list[str], env: dict[str, str], word: str) -> None:
    job = run(bpslaunch(*args, **env))
    assert job.process.returncode == 2
    assert word in job.said
    assert "Traceback" not in job.said


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_service_that_is_not_needed_returns_at_once(role: str) -> None:
    job = run(bpslaunch(DMLC_ROLE=role, DMLC_NUM_WORKER="1"))
    assert job.process.returncode == 0
    assert job.said.count("\n") == 1 and f"no {role} is needed" in job.said


def test_dry_run_starts_nothing_and_shows_no_secret(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    job = run(
        bpslaunch(
            "--dry-run", "--workers", "2", "--servers", "1", "touch", str(mark), BYTEPS_JOB_SECRET="hush-hush"
        )
    )
    assert job.process.returncode == 0
    text = job.out.decode()
    for label in ("scheduler", "server 0", "worker 0", "worker 1"):
        assert f"[{label}] " in text
    assert f"touch {mark}" in text and "DMLC_WORKER_ID=1" in text
    assert text.count("BYTEPS_JOB_SECRET=********") == 4 and "hush-hush" not in text
    assert not mark.exists()


def test_help_teaches_and_loads_nothing_heavy() -> None:
    job = run(bpslaunch("--help"))
    assert job.process.returncode == 0
    for example in (
        *("bpslaunch -n 4 python train.py", "--workers 2 --servers 1 python train.py", "--nproc-per-node"),
        *("--workers 2 -n 2 --servers 2 python train.py", "DMLC_ROLE=scheduler bpslaunch", "--dry-run"),
    ):
        assert example in job.out.decode()
    code = "import sys, byteps.launcher.cli as c; c.build_parser(); sys.exit('numpy' in sys.modules)"
    assert run(Job((sys.executable, "-c", code))).process.returncode == 0


# ---- several processes


def test_every_line_has_its_label_and_streams_stay_apart() -> None:
    job = run(
        supervise(
            [("worker 0", "echo a; echo e >&2; printf b"), ("worker 1", "printf 'x\\r  1%%\\r 99%%\\n'")]
        )
    )
    assert job.process.returncode == 0
    assert sorted(job.out.decode().splitlines()) == ["[worker 0] a", "[worker 0] b", "[worker 1]  99%"]
    said = job.said.splitlines()
    assert said[0] == "[worker 0] e"
    assert said[1].startswith("bpslaunch: done in ") and said[1].endswith(": 2 workers")


def test_order_of_output_and_error_is_kept_when_both_go_to_one_place() -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"
    specs = f'[["worker 0", "worker", ["sh", "-c", "{script}"]], ["worker 1", "worker", ["true"]]]'
    job = run(Job(["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", sys.executable, "-c", DRIVER, specs, "{}"]))
    assert job.lines("worker 0") == [f"{kind} {i}" for i in range(1, 10) for kind in ("out", "err")]


def test_only_worker_0_reads_standard_input() -> None:
    job = run(
        supervise([("server 0", "cat"), ("worker 0", "cat"), ("worker 1", "cat; echo empty")]), "hello\n"
    )
    assert (job.lines("worker 0"), job.lines("worker 1"), job.lines("server 0")) == (["hello"], ["empty"], [])


def test_the_first_failure_gives_the_code_and_its_last_20_lines() -> None:
    specs = [
        ("server 0", "exec sleep 1000"),
        ("worker 0", "exec sleep 1000"),
        ("worker 1", f"{FORTY_LINES}; exit 3"),
    ]
    job = run(supervise(specs, {"leave_s": 0.1, "stop_s": 5}))
    assert job.process.returncode == 3
    tail = "".join(f"[worker 1] line {i}\n" for i in range(20, 40))
    assert job.said.startswith(f"bpslaunch: the last 20 lines of worker 1:\n{tail}bpslaunch: failed after ")
    assert job.said.splitlines()[-1].endswith(" s: worker 1 exited with code 3")
    job = run(supervise(specs, {"leave_s": 0.1, "stop_s": 5}, BYTEPS_LOG_LEVEL="INFO"))
    assert "worker 1 exited with code 3; the others have 0.1 s to end by themselves" in job.said
    assert "ending server 0, worker 0" in job.said


def test_a_failing_service_counts_when_it_is_first() -> None:
    specs = [("scheduler", "echo broken >&2; exit 4"), ("worker 0", "exec sleep 1000")]
    job = run(supervise(specs, {"leave_s": 0.1}))
    assert job.process.returncode == 4
    assert re.fullmatch(
        r"\[scheduler\] broken\nbpslaunch: failed after .*: scheduler exited with code 4\n", job.said
    )


def test_services_end_by_themselves_after_the_workers(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    specs = [
        ("scheduler", f"read x < {gate}; echo scheduler ends"),
        ("server 0", f"echo open > {gate}; echo server ends"),
        ("worker 0", "true"),
    ]
    job = run(supervise(specs))
    assert job.process.returncode == 0
    assert (job.lines("scheduler"), job.lines("server 0")) == (["scheduler ends"], ["server ends"])
    assert job.said.endswith(": 1 scheduler, 1 server, 1 worker\n")


def test_services_that_stay_are_ended_and_the_job_is_good() -> None:
    specs = [
        ("server 0", "exec sleep 1000"),
        ("server 1", "trap '' TERM; while :; do sleep 1000; done"),
        ("worker 0", "true"),
    ]
    job = run(supervise(specs, {"drain_s": 0.1, "stop_s": 0.1}))
    assert job.process.returncode == 0
    assert "no worker runs any more; ending server 0, server 1" in job.said
    assert "killing server 1" in job.said


def test_local_ranks_of_a_worker_machine() -> None:
    env = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "NVIDIA_VISIBLE_DEVICES": "3,5"}
    job = run(bpslaunch("sh", "-c", "echo $BYTEPS_LOCAL_RANK of $BYTEPS_LOCAL_SIZE", **env))
    assert job.process.returncode == 0
    assert (job.lines("worker 0"), job.lines("worker 1")) == (["0 of 2"], ["1 of 2"])
    place = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9", "DMLC_NUM_SERVER": "1"}
    env = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "2", "DMLC_WORKER_ID": "1", **place}
    job = run(bpslaunch("-n", "2", "sh", "-c", "echo $BYTEPS_LOCAL_RANK of $BYTEPS_LOCAL_SIZE", **env))
    assert (job.lines("worker 2"), job.lines("worker 3")) == (["0 of 2"], ["1 of 2"])


# ---- a whole job: the real plan, with a stand-in for the interpreter that runs scheduler and servers

STAND_IN = f"""#!{sys.executable}
import os, socket, sys
role = os.environ["DMLC_ROLE"]
assert sys.argv[1:] == ["-m", "byteps." + role]
if role == "scheduler":
    listener = socket.socket(fileno=int(os.environ["BYTEPS_LISTEN_FD"]))
    assert listener.getsockname() == ("127.0.0.1", int(os.environ["DMLC_PS_ROOT_PORT"]))
    listener.settimeout(30)
    for _ in range(int(os.environ["DMLC_NUM_WORKER"])):
        with listener.accept()[0] as peer:
            peer.sendall(b"welcome")
else:
    assert "BYTEPS_LISTEN_FD" not in os.environ
print(role, "ends")
"""
WORKER = """
import os, socket
with socket.create_connection(("127.0.0.1", int(os.environ["DMLC_PS_ROOT_PORT"])), 30) as peer:
    print(peer.recv(7).decode(), os.environ["DMLC_WORKER_ID"], len(os.environ["BYTEPS_JOB_SECRET"]))
everybody = os.popen("ps -eo args").read()
print("in process list:", os.environ["BYTEPS_JOB_SECRET"] in everybody)
print("job id:", os.environ["BYTEPS_JOB_ID"])
"""
WHOLE_JOB = """
import re
import sys
from byteps.launcher import cli, here
def stand_in(listener, facts=here.facts):
    import dataclasses
    return dataclasses.replace(facts(listener), python=sys.argv[1])
here.facts = stand_in
sys.exit(cli.main(sys.argv[2:]))
"""


def test_a_whole_job_shares_a_bound_port_a_job_id_and_a_secret(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    ids = []
    for _ in range(2):
        argv = [sys.executable, "-c", WHOLE_JOB, str(python)]
        job = run(Job([*argv, "--workers", "2", "--servers", "1", sys.executable, "-c", WORKER]))
        assert job.process.returncode == 0, job.said
        assert job.lines("scheduler") == ["scheduler ends"] and job.lines("server 0") == ["server ends"]
        first, second = job.lines("worker 0"), job.lines("worker 1")
        assert (first[0], second[0]) == ("welcome 0 64", "welcome 1 64")
        assert first[1] == "in process list: False"
        assert first[2] == second[2]
        ids.append(first[2])
    assert ids[0] != ids[1]
