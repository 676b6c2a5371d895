"""Writes what a member of a job has seen into files: a trace of chosen steps, or the last seconds."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from byteps.observe import chrome
from byteps.observe.recording import SUFFIX, Header, read, write
from byteps.observe.ring import EVENT_BYTES, Rings, Thread, time_of

__all__ = ["Self", "write_last_seconds", "write_trace"]


@dataclass(frozen=True)
class Self:
    """Who records, as a recording says it. The functions are asked when something is written."""

    role: str
    rank: int
    local_rank: int
    credit_bytes: int
    tensors: Callable[[], Mapping[int, str]]  # names by id
    clock: Callable[[], tuple[int, int]]  # to add to our times, and how wrong that may be

    def header(self, reason: str, first_step: int = 0, last_step: int = 0) -> Header:
        """What stands in front of the events."""
        ahead, error = self.clock()
        return Header(
            role=self.role,
            rank=self.rank,
            host=socket.gethostname(),
            pid=os.getpid(),
            reason=reason,
            local_rank=self.local_rank,
            clock_ns=ahead,
            clock_error_ns=error,
            wall_ns=time.time_ns() - time.monotonic_ns() - ahead,
            credit_bytes=self.credit_bytes,
            first_step=first_step,
            last_step=last_step,
            tensors=dict(self.tensors()),
        )


def write_trace(folder: Path, header: Header, threads: Sequence[Thread]) -> Path:
    """The recording of a member, and for a worker also its part alone, as users of BytePS know it."""
    path = folder / f"{header.role}-{header.rank}{SUFFIX}"
    write(path, header, threads)
    if header.role == "worker":
        alone = folder / str(header.local_rank) / "comm.json"
        alone.parent.mkdir(parents=True, exist_ok=True)
        # Machines that share the folder have ranks of one local number: one of their files is there, whole.
        unfinished = alone.with_name(f".comm.{header.rank}.json")
        unfinished.write_text(json.dumps(chrome.trace([read(path)])))
        unfinished.replace(alone)
    return path


def write_last_seconds(folder: Path, header: Header, last_s: float) -> Path:
    """What the rings hold of the last seconds; the name says who and when."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"flight-{header.role}-{header.rank}-{header.pid}-{stamp}{SUFFIX}"
    since = time.monotonic_ns() - int(last_s * 1e9)
    write(path, header, [_after(thread, since) for thread in Rings().read()])
    return path


def _after(thread: Thread, since_ns: int) -> Thread:
    """Without what is older. Events are written in the order of their time, but for a moment."""
    low, high = 0, len(thread.packed) // EVENT_BYTES
    while low < high:
        middle = (low + high) // 2
        if time_of(thread.packed, middle) < since_ns:
            low = middle + 1
        else:
            high = middle
    return thread._replace(packed=thread.packed[low * EVENT_BYTES :])
