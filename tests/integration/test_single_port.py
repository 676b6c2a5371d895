"""BYTEPS_SINGLE_PORT and IPv6: which ports the processes of a job really listen on, at which addresses."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launch_job import LIMIT_S, Job, bpslaunch, run

from byteps.tools.lab.network import why_not

CODE = """
import signal
import numpy as np
import byteps as bps
bps.init()
total = bps.push_pull(np.full(100_000, 4.0 ** bps.rank(), np.float32), average=False, name="x")
assert (total == sum(4.0 ** rank for rank in range(bps.size()))).all(), total
print("exact", flush=True)
"""
RANK = (sys.executable, "-c", CODE)
WAITING = (sys.executable, "-c", CODE + "signal.pause()")


def free_ports(count: int, host: str = "127.0.0.1") -> int:
    """The first of so many neighbours that were free a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(100):
        sockets = [socket.socket(family) for _ in range(count)]
        try:
            sockets[0].bind((host, 0))
            first = int(sockets[0].getsockname()[1])
            for offset, sock in enumerate(sockets[1:], 1):
                sock.bind((host, first + offset))
            return first
        except (OSError, OverflowError):
            continue
        finally:
            for sock in sockets:
                sock.close()
    raise AssertionError("no free neighbours")


def listens(pid: int) -> set[int]:
    """The TCP ports on which a process or one of its children listens."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    sockets = set()
    for each in pids:
        for fd in Path(f"/proc/{each}/fd").iterdir():
            if match := re.match(r"socket:\[(\d+)\]", str(fd.readlink())):
                sockets.add(match[1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("own", [False, True])
def test_every_process_has_one_port_that_is_known_before(host: str, own: bool) -> None:
    root = free_ports(4, host)
    env = {
        "DMLC_PS_ROOT_URI": f"[{host}]" if ":" in host else host,
        "DMLC_PS_ROOT_PORT": str(root),
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
        "BYTEPS_JOB_SECRET": "hush-hush",
        "BYTEPS_SINGLE_PORT": "1",
        "BYTEPS_CONNECT_TIMEOUT_S": "30",
    }
    port = root + 3 if own else root + 1
    given = {"DMLC_PORT": str(port)} if own else {}
    with (
        bpslaunch(DMLC_ROLE="scheduler", **env) as scheduler,
        bpslaunch(DMLC_ROLE="server", **env, **given) as server,
        bpslaunch(*WAITING, DMLC_ROLE="worker", DMLC_WORKER_ID="0", **env) as first,
        bpslaunch(*WAITING, DMLC_ROLE="worker", DMLC_WORKER_ID="1", **env) as second,
    ):
        first.expect("exact")
        second.expect("exact")
        assert listens(scheduler.process.pid) == {root}
        assert listens(server.process.pid) == {port}
        assert listens(first.process.pid) == listens(second.process.pid) == set()
        for job in (first, second):
            job.send(signal.SIGTERM)
            job.end()
        server.end()
        scheduler.end()


def test_servers_of_one_machine_get_ports_of_their_own() -> None:
    job = run(bpslaunch("--workers", "2", "--servers", "2", *RANK, BYTEPS_SINGLE_PORT="1"))
    assert job.process.returncode == 0, job.said
    assert job.lines("worker 0") == job.lines("worker 1") == ["exact"]


def test_a_range_is_not_one_port() -> None:
    env = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9000", "DMLC_NUM_WORKER": "2"}
    job = run(
        bpslaunch(
            **env, DMLC_NUM_SERVER="1", DMLC_ROLE="server", BYTEPS_SINGLE_PORT="1", DMLC_PORT="9100-9199"
        )
    )
    assert job.process.returncode != 0
    assert "BYTEPS_SINGLE_PORT=1 wants one port for a server, and gets 9100 to 9199" in job.said


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "can be built here")
@pytest.mark.parametrize(
    "variables", [{}, {"BYTEPS_SINGLE_PORT": "1", "BYTEPS_ENCRYPT": "1"}], ids=["plain", "both"]
)
def test_hosts_without_ipv4(variables: dict[str, str]) -> None:
    argv = [sys.executable, "-m", "byteps.tools.cli", "lab", "--ipv6", "--workers", "2", "--servers", "1"]
    command = ["ip", "-4", "-br", "addr", "show", "eth0"]
    seen = f"{CODE}import subprocess\nprint(subprocess.run({command}, capture_output=True).stdout)"
    done = subprocess.run(
        [*argv, "--", sys.executable, "-c", seen],
        env={**os.environ, "PS_VERBOSE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("exact") == 2 and done.stdout.count("b''") == 2, done.stdout
    assert "connected to [fd77::1]:9000" in done.stderr
    assert ("not encrypted" in done.stderr) == ("BYTEPS_ENCRYPT" not in variables)


def test_the_doctor_takes_an_address_of_ipv6() -> None:
    job = run(Job((sys.executable, "-m", "byteps.tools.cli", "doctor", "[::1]:1")))
    assert "nobody listens at [::1]:1" in job.said + job.out.decode()
