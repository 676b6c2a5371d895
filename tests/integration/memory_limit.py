"""Limits on the memory of a process that runs: RLIMIT_AS, and a memory cgroup of its own."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20
_CGROUPS = Path("/sys/fs/cgroup/memory")  # version 1; of version 2 all files are in the folder above


def address_space(pid: int, more_bytes: int) -> contextlib.nullcontext[None]:
    """So much more than it has now."""
    now = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (now + more_bytes, now + more_bytes))
    return contextlib.nullcontext()


@contextlib.contextmanager
def cgroup(pid: int, most_bytes: int) -> Iterator[None]:
    """So much from now on, what it has already not counted; skips where no group can be made."""
    v1 = (_CGROUPS / "memory.limit_in_bytes").exists()
    group = (_CGROUPS if v1 else _CGROUPS.parent) / f"byteps-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        try:
            (group / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(most_bytes))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            pytest.skip(f"a memory cgroup cannot be used here: {error}")
        yield
    finally:
        with contextlib.suppress(OSError):  # who is left goes back to where the others are
            (group.parent / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def gather(fifos: Path, *ranks: int) -> contextlib.ExitStack:
    """Wait until these workers have joined; they go on when it is closed."""
    held = contextlib.ExitStack()
    for rank in ranks:
        held.enter_context((fifos / str(rank)).open("w"))
    return held


def wait_for_limit(fifos: str, rank: int) -> None:
    """In a worker: until the test has set the limit."""
    with (Path(fifos) / str(rank)).open() as ready:
        ready.read()
