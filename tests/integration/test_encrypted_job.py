"""BYTEPS_ENCRYPT in whole jobs: what is on the wire, who is refused, and somebody in the middle."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from launch_job import LIMIT_S, bpslaunch, run
from test_doctor_job import doctor

from byteps.tools.lab.network import why_not

NAME = "a_layer_that_nobody_should_know"
JOB = f"""
import numpy as np
import byteps as bps
bps.init()
for step in range(3):
    mine = np.full(100_000, 4.0 ** bps.rank() * (step + 1), np.float32)
    total = bps.push_pull(mine, average=False, name={NAME!r})
    assert (total == sum(4.0 ** rank for rank in range(bps.size())) * (step + 1)).all(), total
print("exact")
"""
RANK = (sys.executable, "-c", JOB)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parts(port: int, **more: str) -> dict[str, str]:
    """The variables of a job that is started process by process."""
    return {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
        "BYTEPS_JOB_SECRET": "hush-hush",
        "BYTEPS_JOB_ID": "encrypted",
        **more,
    }


@pytest.mark.parametrize(
    ("setting", "words"), [("0", "not encrypted"), ("1", "not encrypted"), ("all", "AES")]
)
def test_inside_a_machine(setting: str, words: str) -> None:
    job = run(bpslaunch("--workers", "2", "--servers", "1", *RANK, BYTEPS_ENCRYPT=setting, PS_VERBOSE="1"))
    assert job.process.returncode == 0, job.said
    assert job.lines("worker 0") == job.lines("worker 1") == ["exact"]
    lines = re.findall(r"(?:connected to|connection of a) .*", job.said)
    assert len(lines) >= 2 * (3 + 1) + 3  # control, two beats and data of two workers; three of the server
    assert all(words in line or (words == "AES" and "ChaCha20" in line) for line in lines), lines
    assert "by address" not in job.said


def test_ranks_of_one_machine() -> None:
    job = run(bpslaunch("-n", "2", *RANK, BYTEPS_ENCRYPT="all"))
    assert job.process.returncode == 0 and job.lines("worker 1") == ["exact"], job.said


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_without_a_secret_nobody_starts(role: str) -> None:
    env = parts(free_port(), BYTEPS_ENCRYPT="1", BYTEPS_JOB_SECRET="", DMLC_ROLE=role, DMLC_WORKER_ID="0")
    job = run(bpslaunch(*(RANK if role == "worker" else ()), **env))
    assert job.process.returncode != 0
    assert "BYTEPS_ENCRYPT=1 needs a job secret" in job.said and "BYTEPS_JOB_SECRET_FILE" in job.said
    assert role == "worker" or "Traceback" not in job.said


def test_a_worker_that_differs_is_named() -> None:
    env = parts(free_port(), BYTEPS_ENCRYPT="all")
    with bpslaunch(DMLC_ROLE="scheduler", **env) as scheduler:
        plain = {**env, "BYTEPS_ENCRYPT": "0", "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0"}
        with bpslaunch(*RANK, **plain) as worker:
            assert worker.end() != 0
            assert "the worker that calls has BYTEPS_ENCRYPT=0" in worker.said
            assert "the one that answers has all; set it alike" in worker.said
        scheduler.send(signal.SIGTERM)
        scheduler.end()
        assert "the worker that calls has BYTEPS_ENCRYPT=0" in scheduler.said


@pytest.mark.parametrize("setting", ["0", "all"])
def test_the_doctor_tells(setting: str) -> None:
    port = free_port()
    env = parts(port, BYTEPS_ENCRYPT=setting)
    secret = {name: env[name] for name in ("BYTEPS_JOB_SECRET", "BYTEPS_JOB_ID")}
    with bpslaunch(DMLC_ROLE="scheduler", BYTEPS_LOG_LEVEL="INFO", **env) as scheduler:
        with bpslaunch(DMLC_ROLE="server", **env) as server:
            for _ in range(60):
                _, found = doctor(f"127.0.0.1:{port}", **secret)
                if "job" in found and "server (" in found["job"]["text"]:
                    break
            text = found["encryption"]["text"]
            server.send(signal.SIGTERM)
            server.end()
        scheduler.send(signal.SIGTERM)
        scheduler.end()
    if setting == "0":
        assert text.startswith("off: ")
    else:
        assert text.startswith("BYTEPS_ENCRYPT=all: 1 of 1 control connections are encrypted ("), text


class Relay:
    """Passes connections on, and changes one byte of one direction of one of them."""

    def __init__(self, port: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._victim = self._random.randrange(3)  # control or one of two heartbeats
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _accept(self) -> None:
        for number in range(1 << 30):
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            self._sockets += [near, far]
            meddled = self._random.randrange(2) if number == self._victim else -1
            at = self._random.randrange(2_000)
            for direction, (source, target) in enumerate(((near, far), (far, near))):
                position = at if direction == meddled else -1
                threading.Thread(target=self._pass, args=(source, target, position), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, position: int) -> None:
        passed = 0
        try:
            while data := bytearray(source.recv(4096)):
                if passed <= position < passed + len(data):
                    data[position - passed] ^= 1 << self._random.randrange(8)
                passed += len(data)
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.mark.parametrize("seed", range(4))
def test_somebody_between_a_worker_and_the_scheduler(seed: int) -> None:
    """native/tests/stress_meddler.cc does it to data connections, some hundred times."""
    print(f"seed {seed}")
    port = free_port()
    env = parts(port, BYTEPS_ENCRYPT="all", BYTEPS_CONNECT_TIMEOUT_S="6", PS_HEARTBEAT_TIMEOUT="3")
    env |= {"PS_HEARTBEAT_INTERVAL": "0.2", "BYTEPS_OP_TIMEOUT_S": "6"}
    scheduler, server = bpslaunch(DMLC_ROLE="scheduler", **env), bpslaunch(DMLC_ROLE="server", **env)
    honest = bpslaunch(*RANK, **{**env, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0"})
    with scheduler, server, honest:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            threading.Event().wait(0.1)
        relay = Relay(port, seed)
        through = {**env, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1", "DMLC_PS_ROOT_PORT": str(relay.port)}
        with bpslaunch(*RANK, **through) as worker:
            code = worker.end()
            relay.close()
            for process in (honest, server, scheduler):
                process.end()
            # Exact, or no result at all.
            assert (code == 0) == (b"exact" in worker.out), worker.said
            assert "AssertionError" not in worker.said + honest.said
            assert b"exact" not in worker.out or honest.process.returncode == 0, honest.said


CAPTURED = f"""
import os, signal, subprocess, sys
import numpy as np
path = sys.argv[1]
dump = None
if os.environ["DMLC_WORKER_ID"] == "0":
    command = ["tcpdump", "--immediate-mode", "-i", "eth0", "-s", "0", "-U", "-w", path]
    dump = subprocess.Popen(command, stderr=subprocess.PIPE)
    while b"listening on" not in dump.stderr.readline():
        pass
import byteps as bps
bps.init()
def tensor(rank):
    return np.random.default_rng(rank).integers(0, 1 << 20, 16_384).astype(np.float32)
total = bps.push_pull(tensor(bps.rank()), average=False, name={NAME!r})
assert (total == sum(tensor(rank) for rank in range(2))).all()
bps.shutdown()
if dump is not None:
    dump.send_signal(signal.SIGINT)
    dump.wait(20)
"""


@pytest.mark.skipif(bool(why_not()) or not shutil.which("tcpdump"), reason=why_not() or "needs tcpdump")
@pytest.mark.parametrize("setting", ["0", "1"])
def test_a_capture_of_the_link_tells_nothing(setting: str, tmp_path: Path) -> None:
    capture = tmp_path / "w0.pcap"
    script = tmp_path / "job.py"
    script.write_text(CAPTURED)
    argv = [sys.executable, "-m", "byteps.tools.cli", "lab", "--workers", "2", "--servers", "1"]
    done = subprocess.run(
        [*argv, "--", sys.executable, str(script), str(capture)],
        env={**os.environ, "BYTEPS_ENCRYPT": setting},
        capture_output=True, text=True, timeout=3 * LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = capture.read_bytes()
    tensors = [np.random.default_rng(r).integers(0, 1 << 20, 16_384).astype(np.float32) for r in range(2)]
    secret: set[bytes] = set()
    for tensor in (tensors[0], tensors[0] + tensors[1]):  # what this worker pushed and what it got
        data = tensor.tobytes()
        secret |= {data[i : i + 16] for i in range(len(data) - 15)}
    assert len(seen) > 2 * 65_536  # all of it went over this link
    found = sum(seen[i : i + 16] in secret for i in range(len(seen) - 15))
    if setting == "0":  # so the test would see it
        assert found > 60_000 and NAME.encode() in seen
    else:
        assert found == 0 and NAME.encode() not in seen and b"job.py" not in seen
