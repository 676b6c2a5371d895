"""The scripts of the original's guides, run as they are: only hosts, numbers and the program differ.

``guide_scripts/`` has them word for word. The program in place of the MXNet script takes any arguments, and
tells through a pipe, because most of the scripts send all output to /dev/null. ``run.sh`` is not among them:
it ends every Python of the machine.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch_job import BPSLAUNCH, environment

LIMIT_S = 60.0
SCRIPTS = Path(__file__).with_name("guide_scripts")
PROGRAM = """
import os, sys
import numpy as np, byteps as bps
bps.init()
total = bps.push_pull(np.ones(1000) * (bps.rank() + 1), average=False, name="x")[0]
words = [bps.rank(), bps.size(), bps.local_rank(), total, os.environ["BYTEPS_PARTITION_BYTES"]]
words += sys.argv[1:3]
bps.shutdown()
fd = os.open(os.environ["RESULTS"], os.O_WRONLY)
os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
"""


class Machine:
    """A folder with the scripts, and a home whose profile finds this Python and bpslaunch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        os.mkfifo(self.results)
        self._fd = os.open(self.results, os.O_RDWR)  # both ways, so that it never ends
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        (folder / "program.py").write_text(PROGRAM)
        tools = folder / "bin"
        tools.mkdir()
        for name, words in (("bpslaunch", BPSLAUNCH), ("python", BPSLAUNCH[:1]), ("python3", BPSLAUNCH[:1])):
            (tools / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
            (tools / name).chmod(0o755)
        (folder / ".bash_profile").write_text(f"export PATH={tools}:$PATH\n")

    def close(self) -> None:
        os.close(self._fd)

    def run(self, script: str, *args: str, name: str = "", **numbers: object) -> str:
        """Run a script with these values in place of its own; ``name`` for a copy of it."""
        return self.run_text((SCRIPTS / script).read_text(), name or script, *args, **numbers)

    def run_text(self, text: str, name: str, *args: str, **numbers: object) -> str:
        """The same with the text of a script."""
        text = text.replace("192.168.80.230", "127.0.0.1").replace("1234", str(self._port))
        text = re.sub(r"example/mxnet/\S+\.py", str(self.folder / "program.py"), text)
        for variable, value in numbers.items():
            text, count = re.subn(rf"(export {variable}=)\S+", rf"\g<1>{value}", text)
            assert count == 1, variable
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        done = subprocess.run(
            (str(path), *args),
            env=environment(HOME=str(self.folder), RESULTS=str(self.results), OMP_NUM_THREADS="1"),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def told(self, count: int) -> list[list[str]]:
        """What so many programs have told, in the order of ranks."""
        text, deadline = "", time.monotonic() + LIMIT_S
        while text.count("\n") < count:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text.count(chr(10))} of {count} have told: {text!r}"
            text += os.read(self._fd, 65536).decode()
        return sorted((line.split() for line in text.splitlines()), key=lambda words: int(words[0]))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("compressor", ["baseline", "onebit-fp16"])
def test_worker_of_the_first_guide_alone(machine: Machine, compressor: str) -> None:
    """It says DMLC_NUM_WORKER=1 and eight devices: eight ranks on one machine, which need no server."""
    machine.run("worker.sh", compressor)
    found = machine.told(8)
    expected = str(float(sum(range(1, 9))))
    assert [words[:5] for words in found] == [[str(k), "8", str(k), expected, "4096000"] for k in range(8)]
    assert found[0][5:7] == ["--model", "resnet18_v2"]


@pytest.mark.parametrize("worker", ["worker_resnet50_v2.sh", "worker_vgg16.sh"])
def test_scheduler_servers_and_workers(machine: Machine, worker: str) -> None:
    machine.run("server.sh", DMLC_NUM_WORKER=2, DMLC_NUM_SERVER=2)
    for index in range(2):
        machine.run(
            worker,
            "baseline" if index else "onebit",
            name=f"worker{index}.sh",
            DMLC_NUM_WORKER=2,
            DMLC_NUM_SERVER=2,
            DMLC_WORKER_ID=index,
            NVIDIA_VISIBLE_DEVICES="0,1",
        )
    machine.run("scheduler.sh", DMLC_NUM_WORKER=2, DMLC_NUM_SERVER=2)
    machine.run("server.sh", name="server2.sh", DMLC_NUM_WORKER=2, DMLC_NUM_SERVER=2)
    assert [words[:4] for words in machine.told(4)] == [[str(k), "4", str(k % 2), "10.0"] for k in range(4)]


def test_the_lines_of_the_guide_to_running(machine: Machine) -> None:
    """Two workers, a server and a scheduler, each started by a line with DMLC variables, in any order."""
    common = "DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=1234 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1"
    lines = [
        f"DMLC_ROLE=worker {common} DMLC_WORKER_ID=1 bpslaunch python example/mxnet/a.py b & pids=$!",
        f"DMLC_ROLE=server {common} bpslaunch & pids=\"$pids $!\"",
        f"DMLC_ROLE=worker {common} DMLC_WORKER_ID=0 bpslaunch python example/mxnet/a.py & pids=\"$pids $!\"",
        f"DMLC_ROLE=scheduler {common} bpslaunch & pids=\"$pids $!\"",
        'for pid in $pids; do wait $pid || exit; done',
    ]  # fmt: skip
    text = "\n".join(["#!/bin/bash --login", "export BYTEPS_PARTITION_BYTES=8192", *lines, ""])
    machine.run_text(text, "lines.sh")
    assert [words[:5] for words in machine.told(2)] == [[str(k), "2", "0", "3.0", "8192"] for k in range(2)]


def test_ranks_without_a_launcher(machine: Machine) -> None:
    """As the page of variables says: BYTEPS_LOCAL_RANK and BYTEPS_LOCAL_SIZE for every rank."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    common = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1"}
    common |= {"DMLC_PS_ROOT_PORT": port, "DMLC_WORKER_ID": "0", "BYTEPS_LOCAL_SIZE": "2"}
    common |= {"RESULTS": str(machine.results), "BYTEPS_PARTITION_BYTES": "8192"}
    ranks = [
        subprocess.Popen(
            (sys.executable, str(machine.folder / "program.py")),
            env=environment(**common, BYTEPS_LOCAL_RANK=str(rank)),
            stdin=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    assert [rank.wait(LIMIT_S) for rank in ranks] == [0, 0]
    assert [words[:4] for words in machine.told(2)] == [[str(k), "2", str(k), "3.0"] for k in range(2)]
