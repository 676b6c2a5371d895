"""Runs the launcher as a process of its own and talks to it; every wait has a limit."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import byteps

LIMIT_S = 30.0
SOURCE = str(Path(byteps.__file__).parents[1])
BPSLAUNCH = (sys.executable, "-m", "byteps.launcher")

# Supervises any processes: [[label, role, argv], ...] and the times of the phases, as JSON.
DRIVER = """
import json, os, sys
from byteps.launcher import guard, supervise
from byteps.launcher.ending import Times
from byteps.launcher.plan import ProcessSpec
rows = json.loads(sys.argv[1])
specs = [ProcessSpec(name, role, tuple(argv), stdin=name == "worker 0") for name, role, argv in rows]
times = Times(**json.loads(sys.argv[2]))
sys.exit(guard.guarded(lambda gone: supervise.run(specs, os.environ, front_gone=gone, times=times)))
"""


def environment(**more: str) -> dict[str, str]:
    """The environment of the tests without a job of their own, and with this source tree."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("BYTEPS_", "DMLC_", "NVIDIA_", "NO_COLOR"))
    }
    path = os.pathsep.join(filter(None, (SOURCE, kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, **more}


class Job:
    """A running launcher."""

    def __init__(
        self, argv: Sequence[str], *, stdin: int = subprocess.PIPE, ignore: int = 0, **env: str
    ) -> None:
        def prepare() -> None:  # what a shell gives to its children, whatever started the tests
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN if number == ignore else signal.SIG_DFL)

        self.process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**env),
            preexec_fn=prepare,
        )
        self.out = b""
        self.err = b""

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def expect(self, pattern: str) -> re.Match[str]:
        """Read standard output until ``pattern`` is in it."""
        assert self.process.stdout is not None
        fd, deadline = self.process.stdout.fileno(), time.monotonic() + LIMIT_S
        while not (match := re.search(pattern, self.out.decode(errors="replace"))):
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(fd, 65536) if ready else b""
            assert data, f"{pattern!r} did not come; {self.out!r}, {self.err!r}"
            self.out += data
        return match

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end(self, text: str = "") -> int:
        """Wait for the end; ``text`` goes to standard input. Returns the exit code."""
        out, err = self.process.communicate(text.encode() if self.process.stdin else None, LIMIT_S)
        self.out += out
        self.err += err
        return self.process.returncode

    @property
    def said(self) -> str:
        return self.err.decode(errors="replace")

    def lines(self, label: str) -> list[str]:
        """What a process has written to standard output."""
        mark = f"[{label}] "
        return [line[len(mark) :] for line in self.out.decode().splitlines() if line.startswith(mark)]


def bpslaunch(*args: str, **env: str) -> Job:
    return Job((*BPSLAUNCH, *args), **env)


def supervise(
    specs: Iterable[Sequence[object]], times: dict[str, float] | None = None, **options: Any
) -> Job:
    """``specs``: (label, shell command) or (label, [argv]); the role is the first word of the label."""
    rows = []
    for label, command in specs:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        rows.append([label, str(label).split()[0], argv])
    return Job([sys.executable, "-c", DRIVER, json.dumps(rows), json.dumps(times or {})], **options)


def run(job: Job, text: str = "") -> Job:
    """Run to the end. The exit code is in ``job.process.returncode``."""
    with job:
        job.end(text)
    return job


def ended(pid: int) -> bool:
    """Wait until a process that is not our child has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(LIMIT_S * 1000))
    finally:
        os.close(fd)


def child_of(pid: int) -> int:
    """The only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
