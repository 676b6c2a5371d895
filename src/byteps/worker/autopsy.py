"""How a scheduler or server that this rank has started came to its end: only its parent can tell.

The others see a connection that closed. The launcher is no parent either, so it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from typing import NamedTuple

from byteps.config import Config
from byteps.control import blame
from byteps.control.blame import Verdict, Whom
from byteps.control.procfs import ended_by, stopped
from byteps.worker import services

__all__ = ["Finding", "finding", "look", "of"]

LOOK_S = 0.5  # a process closes its connections a moment before it has ended


class Finding(NamedTuple):
    """Whom, why, and its exit code as a shell counts it; 0: it has not ended."""

    whom: Whom
    text: str
    code: int


async def of(role: str, config: Config) -> Finding | None:
    """Look, and tell the launcher what there is to tell. None: this rank has not started it, or it runs."""
    started = services.started(role)
    if started is None:
        return None
    if not stopped(started.process.pid):  # one that is does not end by itself, and our own end is near
        await _ended(started.process.pid, LOOK_S)
    return _look_at(role, started.process, config)


def look(role: str, config: Config) -> None:
    """The same for a thread that can wait: another rank was first to notice, and our own end is near."""
    started = services.started(role)
    if started is None:
        return
    if not stopped(started.process.pid):
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.process.wait(LOOK_S)
    _look_at(role, started.process, config)


def _look_at(role: str, process: subprocess.Popen[bytes], config: Config) -> Finding | None:
    code = process.poll()
    found = finding(Whom(role, 0, socket.gethostname(), process.pid), code, stopped(process.pid))
    if found is not None:
        speaker = Whom("worker", config.local_rank, pid=os.getpid())
        blame.tell(config.blame, Verdict(speaker, found.whom, found.text, found.code))
    return found


def finding(whom: Whom, code: int | None, is_stopped: bool) -> Finding | None:
    """Pure: what a code of ``Popen`` means."""
    if code is None:
        return Finding(whom, "its process is stopped (SIGSTOP)", 0) if is_stopped else None
    if code < 0:
        return Finding(whom, f"it was ended by {ended_by(-code)}", 128 - code)
    return Finding(whom, f"it exited with code {code}", code)


async def _ended(pid: int, timeout_s: float) -> None:
    """Wait for the end of a child, without collecting it."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # collected already, or an old kernel
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), timeout_s)
    except asyncio.TimeoutError:
        pass
    finally:
        loop.remove_reader(fd)
        os.close(fd)
