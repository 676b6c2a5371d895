"""``bps doctor`` on this machine, as the command of a job, and looking at a real job from outside."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
from launch_job import Job, bpslaunch, run

from byteps.config import load
from byteps.control.channel import Channel
from byteps.control.connection import credentials_of, open_socket
from byteps.control.handshake import ClientHandshake
from byteps.control.hello import job_number
from byteps.control.messages import Barrier
from byteps.scheduler import observers

BPS = (sys.executable, "-m", "byteps.tools.cli")


def doctor(*args: str, **env: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status and the findings by check."""
    job = run(Job((*BPS, "doctor", "--json", *args), **env))
    assert job.out, job.said
    report = json.loads(job.out)
    assert report["status"] == job.process.returncode
    return job.process.returncode, {row["check"]: row for row in report["findings"]}


def test_this_machine() -> None:
    status, found = doctor()
    assert status == 0, found
    assert {"core", "settings", "cores", "open files", "/dev/shm", "memory of ranks"} <= found.keys()
    assert all(row["remedy"] for row in found.values() if row["mark"] != "ok")
    assert "scheduler" not in found


def test_wrong_settings_and_wrong_use() -> None:
    status, found = doctor(BYTEPS_PARTITION_BYTES="many")
    assert status == 1 and "BYTEPS_PARTITION_BYTES='many'" in found["settings"]["text"]
    job = run(Job((*BPS, "doctor", "nonsense")))
    assert job.process.returncode == 2 and "expected HOST:PORT" in job.said


@pytest.mark.parametrize("shape", [("-n", "2"), ("--workers", "2", "-n", "2", "--servers", "2")])
def test_a_job_that_measures_itself(shape: tuple[str, ...]) -> None:
    job = run(bpslaunch(*shape, *BPS, "doctor", "--json"))
    assert job.process.returncode == 0, job.said
    report = json.loads("\n".join(job.lines("worker 0")))
    found = {row["check"]: row for row in report["findings"]}
    workers, servers = (2, 0) if shape[0] == "-n" else (4, 2)
    assert found["job"]["text"] == f"epoch 1: {workers} workers, {servers} servers"
    assert found["push_pull"]["text"].endswith(f"{workers} ranks")
    assert {"bandwidth", "versions", "clocks", "packages", "route"} <= found.keys()
    assert ("round trip" in found) == ("packet loss" in found) == (servers > 0)
    assert job.out.decode().count('"findings"') == 1  # one rank reports


def test_a_running_job_from_outside() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port)}
    secret = {"BYTEPS_JOB_SECRET": "hush-hush", "BYTEPS_JOB_ID": "looked-at"}
    numbers = {"DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
    status, found = doctor(**place, **secret)
    assert status == 1 and "nobody listens" in found["scheduler"]["text"]
    code = "import byteps, signal; byteps.init(); print('ready', flush=True); signal.pause()"
    env = {**place, **secret, **numbers, "BYTEPS_LOG_LEVEL": "INFO"}
    with bpslaunch(DMLC_ROLE="scheduler", **env) as scheduler, bpslaunch(DMLC_ROLE="server", **env) as server:
        worker = (sys.executable, "-c", code)
        with bpslaunch(*worker, DMLC_ROLE="worker", DMLC_WORKER_ID="0", **env) as first:
            _wait_for(place, secret, "1 of 2 workers, 1 of 1 servers; missing worker 1")
            with bpslaunch(*worker, DMLC_ROLE="worker", DMLC_WORKER_ID="1", **env) as second:
                first.expect("ready")
                second.expect("ready")
                status, found = doctor(f"127.0.0.1:{port}", **secret)  # by argument
                assert status == 0
                assert found["job"]["text"] == "epoch 1: 2 workers, 1 servers"
                assert found["versions"]["mark"] == "ok" and "(4 compared)" in found["clocks"]["text"]
                asyncio.run(_rude(port, secret))  # the job does not mind
                for wrong in ({}, {**secret, "BYTEPS_JOB_SECRET": "guess"}, {**secret, "BYTEPS_JOB_ID": "x"}):
                    status, found = doctor(**place, **wrong)
                    assert status == 1 and found["scheduler"]["mark"] == "fail"
                    assert "hush" not in json.dumps(found) and "job" not in found
                for job in (first, second):
                    job.send(signal.SIGKILL)
                    job.end()
        server.end()
        scheduler.end()


async def _rude(port: int, secret: dict[str, str]) -> None:
    """An observer that says what only a worker may say is sent away."""
    config = load(secret)
    credentials = credentials_of(config)
    handshake = ClientHandshake(credentials.job_id, credentials.secret, observers.CHANNEL, observers.ROLE)
    sock = await open_socket("127.0.0.1", port, handshake)
    channel = await Channel.over(sock, job_number(config.job_id), "the scheduler")
    channel.send(Barrier(1))
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(channel.receive(), 10)
    channel.close()


def _wait_for(place: dict[str, str], secret: dict[str, str], text: str) -> None:
    """Ask until the job stands where it should; every question takes time, and they are limited."""
    said = ""
    for _ in range(60):
        _, found = doctor(**place, **secret)
        said = found["job"]["text"] if "job" in found else found["scheduler"]["text"]
        if text in said:
            assert "worker (" in said  # it is connected
            return
    pytest.fail(f"{text!r} did not come: {said}")


def test_a_port_of_another_program() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code = (
            "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\n"
            "for _ in range(2): s.accept()[0].sendall(b'HTTP/1.1 400 Bad Request' + bytes(100))\n"
        )
        fd = other.fileno()
        with subprocess.Popen((sys.executable, "-c", code, str(fd)), pass_fds=(fd,)) as program:
            status, found = doctor(f"127.0.0.1:{other.getsockname()[1]}")
            program.kill()
    assert status == 1 and found["scheduler"]["mark"] == "fail"
