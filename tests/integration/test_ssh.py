"""bpslaunch -H over a real sshd on loopback; every host is an address of this machine."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sshd
from launch_job import LIMIT_S, Job, bpslaunch, child_of, ended, run

from conftest import MARK

THREE = ("-H", "127.0.0.1:2,127.0.0.2:1", "--server-hosts", "127.0.0.3")
# Sums, and looks for the secret of the job in the command line of every process of this machine.
WORKER = """
import hashlib, os, pathlib, sys
import numpy as np, byteps as bps
bps.init()
total = bps.push_pull(np.full(9, 4.0**bps.rank()), average=False, name="x")[0]
secret = os.environ["BYTEPS_JOB_SECRET"]
leaks = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        leaks += [str(path)] if secret.encode() in path.read_bytes() else []
    except OSError:
        pass
bps.barrier()
if bps.rank() == 0:
    pathlib.Path("secret").write_text(secret)
place = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GIVEN", "PASSED", "MASTER_ADDR")]
print("sum", total, *place, "leaks", leaks, flush=True)
"""
READY = "echo ready $$"
WAIT = "while :; do sleep 1000; done"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as found:
        yield found


def launch(server: sshd.Sshd, *args: str, **env: str) -> Job:
    """The mark goes along, so that what a test leaves behind on a host is found too."""
    return bpslaunch("--ssh", server.ssh, "--env", MARK, *args, **env)


def pids(job: Job, *labels: str) -> list[int]:
    return [int(job.expect(rf"\[{re.escape(label)}\] ready (\d+)").group(1)) for label in labels]


def test_a_job_on_three_hosts_and_its_secret(server: sshd.Sshd, tmp_path: Path) -> None:
    args = ("--env", "GIVEN=by option", "--env", "PASSED", "--chdir", str(tmp_path), *THREE)
    job = run(launch(server, *args, "python", "-c", WORKER, PASSED="on", BYTEPS_LOG_LEVEL="INFO"))
    assert job.process.returncode == 0, job.said
    for rank, local, label in ((0, 0, "0@127.0.0.1"), (1, 1, "1@127.0.0.1"), (2, 0, "2@127.0.0.2")):
        expected = f"sum 21.0 {rank} 3 {local} by option on 127.0.0.1 leaks []"
        assert expected in job.lines(f"worker {label}")
    assert "1 scheduler, 1 server, 3 workers" in job.said
    secret = (tmp_path / "secret").read_text()
    assert len(secret) == 64 and secret not in job.out.decode() and secret not in job.said
    assert secret not in server.log.read_text()


def test_ranks_of_one_host_need_no_server(server: sshd.Sshd, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# one machine\n127.0.0.1 slots=2\n")
    code = "import byteps as bps; bps.init(); print(bps.rank(), bps.size(), flush=True)"
    job = run(launch(server, "--hostfile", str(hosts), "python", "-c", code))
    assert job.process.returncode == 0, job.said
    assert (job.lines("worker 0@127.0.0.1"), job.lines("worker 1@127.0.0.1")) == (["0 2"], ["1 2"])


def test_the_options_of_the_originals_launcher(server: sshd.Sshd, tmp_path: Path) -> None:
    import getpass

    for name in ("workers", "servers"):
        (tmp_path / name).write_text(f"127.0.0.1:{server.port}\n127.0.0.2:{server.port}\n")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    script = "import os, byteps as bps; bps.init(); "
    script += "print(bps.size(), os.environ['DMLC_PS_ROOT_PORT'], os.environ['A'])"
    job = run(
        launch(
            server,
            *(
                "-WH",
                str(tmp_path / "workers"),
                "-SH",
                str(tmp_path / "servers"),
                "--scheduler-ip",
                "127.0.0.1",
            ),
            *(
                "--scheduler-port",
                port,
                "--username",
                getpass.getuser(),
                "--env",
                "A:1",
                "python",
                "-c",
                script,
            ),
        )
    )
    assert job.process.returncode == 0, job.said
    assert job.lines("worker 1@127.0.0.2") == [f"2 {port} 1"]
    assert "1 scheduler, 2 servers, 2 workers" in job.said


def test_a_failure_comes_back_with_host_rank_and_last_lines(server: sshd.Sshd) -> None:
    script = (
        f"[ $RANK = 1 ] || {{ {WAIT}; }}; i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done; exit 3"
    )
    job = run(launch(server, "-H", "127.0.0.1,127.0.0.2", "sh", "-c", script))
    assert job.process.returncode == 3
    tail = "".join(f"[worker 1@127.0.0.2] line {i}\n" for i in range(20, 40))
    assert f"bpslaunch: the last 20 lines of worker 1@127.0.0.2:\n{tail}bpslaunch: failed after " in job.said
    assert job.said.splitlines()[-1].split(": ", 2)[2].startswith("worker 1@127.0.0.2 exited with code 3")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all(server: sshd.Sshd, number: signal.Signals, code: int) -> None:
    deaf = f"[ $RANK = 0 ] || trap '' INT TERM; {READY}; {WAIT}"
    with launch(server, "-H", "127.0.0.1,127.0.0.2", "sh", "-c", deaf) as job:
        found = pids(job, "worker 0@127.0.0.1", "worker 1@127.0.0.2")
        job.send(number)
        assert job.end() == code, job.said
    assert all(ended(pid) for pid in found)
    assert re.search(r"killing .*worker 1@127.0.0.2: it did not end", job.said)


FAMILY = f"sleep 1001 & echo child $!; (setsid sh -c 'echo daemon $$; exec sleep 1003' &) ; {READY}; {WAIT}"


@pytest.mark.parametrize("victim", ["launcher", "supervisor", "both"])
def test_sigkill_of_the_launcher_leaves_nothing_anywhere(server: sshd.Sshd, victim: str) -> None:
    with launch(server, "-H", "127.0.0.1,127.0.0.2", "sh", "-c", FAMILY) as job:
        labels = ("worker 0@127.0.0.1", "worker 1@127.0.0.2")
        words = ("child", "daemon", "ready")
        found = [
            int(job.expect(rf"\[{re.escape(label)}\] {word} (\d+)").group(1))
            for label in labels
            for word in words
        ]
        front = job.process.pid
        supervisor = child_of(front)
        if victim != "supervisor":
            os.kill(front, signal.SIGSTOP)
        if victim != "launcher":
            os.kill(supervisor, signal.SIGKILL)
        if victim != "supervisor":
            os.kill(front, signal.SIGKILL)
        assert all(ended(pid) for pid in [*found, supervisor])


def test_a_lost_connection_ends_that_host_and_the_job(server: sshd.Sshd) -> None:
    with launch(server, "-H", "127.0.0.1,127.0.0.2", "sh", "-c", f"{READY}; {WAIT}") as job:
        found = pids(job, "worker 0@127.0.0.1", "worker 1@127.0.0.2")
        supervisor = child_of(job.process.pid)
        clients = [
            int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        ]
        (client,) = [pid for pid in clients if b"127.0.0.2" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(client, signal.SIGKILL)
        assert job.end() == 137
    assert all(ended(pid) for pid in found)
    assert "127.0.0.2: the connection was lost" in job.said


def test_an_agent_that_dies_takes_its_processes_along(server: sshd.Sshd) -> None:
    script = f"{READY}; echo agent $PPID; {WAIT}"
    with launch(server, "-H", "127.0.0.1,127.0.0.2", "sh", "-c", script) as job:
        found = pids(job, "worker 0@127.0.0.1", "worker 1@127.0.0.2")
        os.kill(int(job.expect(r"\[worker 1@127.0.0.2\] agent (\d+)").group(1)), signal.SIGKILL)
        assert job.end() == 137, job.said
    assert all(ended(pid) for pid in found)


# No shell: one that is stopped while it starts a command is not in the state of a stopped process.
CONTINUED = """
import os, signal
signal.signal(signal.SIGCONT, lambda *_: print("continued", flush=True))
print("ready", os.getpid(), flush=True)
while True:
    signal.pause()
"""


def stopped(pid: int) -> bool:
    """Wait until a process is stopped; nothing tells that of a process that is not our child."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
        time.sleep(0.01)
    return False


def test_a_stopped_launcher_stops_and_continues_its_job(server: sshd.Sshd) -> None:
    with launch(server, "-H", "127.0.0.1", "python", "-c", CONTINUED) as job:
        (pid,) = pids(job, "worker 0@127.0.0.1")
        job.send(signal.SIGTSTP)
        for each in (pid, child_of(job.process.pid), job.process.pid):
            assert stopped(each)
        job.send(signal.SIGCONT)
        job.expect("continued")
        job.send(signal.SIGTERM)
        assert job.end() == 143
    assert ended(pid)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("-H", "127.0.0.1,nowhere", "true"), 255, ["nowhere: no agent", "Connection refused"]),
        (("-H", "127.0.0.1", "--python", "/no/python", "true"), 127, ["not found there", "--python PATH"]),
        (("-H", "127.0.0.1", "--python", "/usr/bin/true", "true"), 255, ["no agent could be started"]),
        (("-H", "127.0.0.1", "--chdir", "/no/folder", "true"), 1, ["'/no/folder'", "--chdir"]),
        (("-H", "127.0.0.1,127.0.0.2", "no-such-command"), 127, ["command not found: 'no-such-command'"]),
        (("-H", "127.0.0.1:0", "true"), 2, ["127.0.0.1: 0 is no number"]),
        (("-H", "a b", "true"), 2, ["'a b' is not a host"]),
        (("-H", "a", "--workers", "2", "true"), 2, ["--workers", "keep one"]),
        (("-H", "a", "--slurm", "true"), 2, ["different ways to launch"]),
        (("-H", "a", "--env", "NOT_SET_HERE", "true"), 2, ["NOT_SET_HERE", "not set here"]),
        (("-H", "a",), 2, ["nothing to run"]),
        (("--hostfile", "/no/file", "true"), 2, ["'/no/file' cannot be read"]),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said(
    server: sshd.Sshd, args: tuple[str, ...], code: int, words: list[str]
) -> None:
    job = run(launch(server, *args))
    assert job.process.returncode == code, job.said
    for word in words:
        assert word in job.said
    assert "Traceback" not in job.said


def test_a_port_in_use_says_by_whom(server: sshd.Sshd) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        job = run(launch(server, "-H", "127.0.0.1,127.0.0.2", "--scheduler-port", port, "true"))
    assert job.process.returncode == 1
    assert f"cannot use port {port} for the scheduler" in job.said
    assert f"by process {os.getpid()} (" in job.said and "--scheduler-port" in job.said


def test_much_output_comes_whole_and_in_order(server: sshd.Sshd) -> None:
    size, lines = 1000, 8000
    script = f"import sys\nfor k in range({lines}): sys.stdout.write('%0{size}d\\n' % k)"
    job = run(launch(server, "-H", "127.0.0.1:2", "python", "-c", script))
    for label in ("worker 0@127.0.0.1", "worker 1@127.0.0.1"):
        text = "\n".join(job.lines(label))
        expected = "\n".join(f"%0{size}d" % k for k in range(lines))
        assert hashlib.sha256(text.encode()).digest() == hashlib.sha256(expected.encode()).digest()


def test_localhost_alone_needs_no_ssh(tmp_path: Path) -> None:
    job = run(bpslaunch("--ssh", "/no/such/ssh", "-H", "localhost:2", "sh", "-c", "echo $LOCAL_RANK"))
    assert job.process.returncode == 0, job.said
    assert (job.lines("worker 0@localhost"), job.lines("worker 1@localhost")) == (["0"], ["1"])
    job = run(bpslaunch("--ssh", "/no/such/ssh", "-H", "other:2", "true"))
    assert job.process.returncode == 127 and "cannot start ssh" in job.said


def test_dry_run_shows_hosts_and_no_secret() -> None:
    job = run(bpslaunch("--dry-run", *THREE, "python", "train.py", BYTEPS_JOB_SECRET="hush-hush"))
    text = job.out.decode()
    for label in ("scheduler@127.0.0.1", "server 0@127.0.0.3", "worker 1@127.0.0.1", "worker 2@127.0.0.2"):
        assert f"[{label}] " in text
    assert sys.executable in text and "hush-hush" not in text


BLAMED = """
import os, sys, time
import numpy as np, byteps as bps
bps.init()
bps.push_pull(np.ones(9), name="x")
if bps.rank() == 1:
    bps.shutdown()
    print("the cause", flush=True)
    time.sleep(0.5)  # its interpreter takes long to end: the others notice first, and end first
    sys.exit(7)
for _ in range(1000):
    bps.push_pull(np.ones(9), name="x")
"""


def test_files_of_output_and_the_rank_that_gets_the_blame(server: sshd.Sshd, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    args = ("--log-dir", str(logs), "-H", "127.0.0.1,127.0.0.2", "--servers", "1")
    job = run(launch(server, *args, "python", "-c", BLAMED))
    assert job.process.returncode == 7, job.said
    assert "the last line of worker 1@127.0.0.2:\n[worker 1@127.0.0.2] the cause" in job.said
    assert (logs / "worker-1@127.0.0.2.log").read_text() == "the cause\n"
    assert sorted(path.name for path in logs.iterdir())[0] == "scheduler@127.0.0.1.log"
    job = run(launch(server, "--log-dir", "/proc/none", "-H", "127.0.0.1", "true"))
    assert job.process.returncode == 2 and "--log-dir" in job.said
