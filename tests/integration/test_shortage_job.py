"""Whole processes that run out of descriptors: an error with a remedy, or a service that lives on."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys

import pytest
from control_job import LIMIT_S, Job, Process
from launch_job import BPSLAUNCH, environment

SERVICE = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
runpy.run_module("byteps.{role}", run_name="__main__", alter_sys=True)
"""
# Only the soft limit: the scheduler that rank 0 starts takes what it may have.
RANK = """
import resource
import byteps as bps
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
bps.init()
"""


@pytest.mark.parametrize("limit", [5, 8, 14, 18])
def test_a_rank_without_descriptors_says_how_to_have_more(limit: int) -> None:
    script = RANK.format(limit=limit)
    done = subprocess.run(
        [*BPSLAUNCH, "-n", "2", sys.executable, "-c", script],
        env=environment(BYTEPS_CONNECT_TIMEOUT_S="20"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "JoinError: init:" in said, said
    assert f"all {limit} descriptors that it may have" in said and "ulimit -n 65536" in said
    assert "Exception ignored" not in said and "RuntimeError" not in said.replace("JoinError", "")


@pytest.mark.parametrize("limit", [7, 9, 14])
def test_a_launcher_without_descriptors_says_how_to_have_more(limit: int) -> None:
    done = subprocess.run(
        [*BPSLAUNCH, "-n", "4", "true"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )
    assert done.returncode in (1, 126) and "Traceback" not in done.stderr, done.stderr
    assert f"all {limit} descriptors that it may have" in done.stderr and "ulimit -n" in done.stderr


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_service_without_descriptors_says_how_to_have_more(role: str) -> None:
    with Job(1, 1) as job:
        env = {**job.env, "DMLC_ROLE": role, "BYTEPS_CONNECT_TIMEOUT_S": "10"}
        process = Process(["-c", SERVICE.format(limit=6, role=role)], env)
        assert process.wait() == 1
        process.end()
        assert "all 6 descriptors that it may have" in process.output and "Traceback" not in process.output


def test_a_scheduler_that_strangers_have_left_without_descriptors_lives_on() -> None:
    """It says so, a few times, does not spin, and lets members in: silent strangers have to go for them."""
    with Job(1, 1) as job:
        fd = job.listener.fileno()
        env = {**job.env, "DMLC_ROLE": "scheduler", "BYTEPS_LISTEN_FD": str(fd)}
        scheduler = job._start(Process(["-c", SERVICE.format(limit=30, role="scheduler")], env, (fd,)))
        job.raw_when_up(0).close()
        strangers = [socket.create_connection(("127.0.0.1", job.port), LIMIT_S) for _ in range(60)]
        line = scheduler.expect("cannot accept a connection")
        assert "all 30 descriptors that it may have" in line and "ulimit -n" in line
        server, worker = job.server(), job.joining(0).result(LIMIT_S)
        worker.client.leave()
        assert (server.wait(), scheduler.wait()) == (0, 0), scheduler.output
        assert len(scheduler.lines) < 30 and "Traceback" not in scheduler.output, scheduler.output
        for stranger in strangers:
            stranger.close()
