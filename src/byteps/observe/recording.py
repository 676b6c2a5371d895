"""A recording: the events of one process in a file, with what is needed to read them elsewhere.

    magic, version      8 bytes
    length of header    4 bytes, little-endian
    header              JSON: who it was, its clock, names of tensors, threads and how many events each has
    events              packed as in the rings, thread by thread

Written by traces and by the flight recorder, read by ``bps trace``. Whoever gives a file away gives the names
of tensors and hosts away, and no values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from byteps import _core
from byteps.observe.ring import EVENT_BYTES, Event, Thread, unpacked

__all__ = ["SUFFIX", "Header", "Recording", "read", "write"]

SUFFIX = ".bpstrace"
_MAGIC = b"BPSTRC\x00\x01"
_MAX_HEADER_BYTES = 64 << 20


class Header(msgspec.Struct, frozen=True):
    """Who recorded, and how to read it."""

    role: str
    rank: int
    host: str
    pid: int
    reason: str  # why it was written
    local_rank: int = 0
    clock_ns: int = 0  # to be added to times: then they are those of the scheduler's machine
    clock_error_ns: int = 0  # at most so far off
    wall_ns: int = 0  # to be added to times of the scheduler's machine: nanoseconds since 1970
    credit_bytes: int = 0
    first_step: int = 0  # of a trace: what is before is not of interest; 0: everything is
    last_step: int = 0
    tensors: dict[int, str] = {}
    stages: tuple[str, ...] = ()
    threads: list[tuple[str, int, int]] = []  # name, events lost, events

    def __str__(self) -> str:
        return f"{self.role} {self.rank} ({self.host})"


class Recording(msgspec.Struct, frozen=True):
    """One file."""

    header: Header
    packed: list[bytes]  # by thread

    def threads(self) -> Iterator[tuple[str, Iterator[Event]]]:
        """Every thread's name and its events in order of writing, by the clock of the scheduler's machine."""
        ahead = self.header.clock_ns
        for (name, _, _), packed in zip(self.header.threads, self.packed, strict=True):
            events = unpacked(packed, self.header.stages)
            yield name, (each._replace(at_ns=each.at_ns + ahead) if ahead else each for each in events)

    def events(self) -> list[Event]:
        """All events, in order of time."""
        return sorted((each for _, events in self.threads() for each in events), key=lambda e: e.at_ns)


def write(path: Path, header: Header, threads: Sequence[Thread]) -> None:
    """Write a recording; under its name it is whole or not there."""
    told = [(each.name, each.lost, len(each.packed) // EVENT_BYTES) for each in threads]
    text = msgspec.json.encode(msgspec.structs.replace(header, stages=_core.STAGES, threads=told))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.writelines([_MAGIC, len(text).to_bytes(4, "little"), text, *(t.packed for t in threads)])
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> Recording:
    """The recording in a file; ValueError says what is wrong with it."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError(f"{path} is no recording of this version of byteps")
        length = int.from_bytes(file.read(4), "little")
        if length > _MAX_HEADER_BYTES:
            raise ValueError(f"{path}: a header of {length} bytes, expected at most {_MAX_HEADER_BYTES}")
        try:
            header = msgspec.json.decode(file.read(length), type=Header)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}: its header does not decode: {error}") from None
        packed: list[Any] = []
        for name, _, count in header.threads:
            packed.append(file.read(count * EVENT_BYTES))
            if len(packed[-1]) != count * EVENT_BYTES:
                raise ValueError(f"{path} ends in the middle of the events of {name}")
    return Recording(header, packed)
