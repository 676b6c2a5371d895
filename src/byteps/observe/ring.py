"""What the rings of the core hold (``native/observe/trace_event.h``), for those who read them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from byteps import _core

__all__ = ["EVENT_BYTES", "NOBODY", "WHOLE", "Event", "Rings", "Thread", "time_of", "unpacked"]

WHOLE = 0xFFFFFFFF  # as a piece: the event is about the whole tensor
NOBODY = 0xFFFF  # as a peer
_LAYOUT = struct.Struct("<BBHIIIqII")  # stage, note, peer, round, piece, tensor, at_ns, bytes, took_ns

_TIME = struct.Struct("<q")
_TIME_AT = struct.calcsize("<BBHIII")
EVENT_BYTES = _LAYOUT.size

if EVENT_BYTES != _core.EVENT_BYTES:
    raise ImportError(f"an event has {_core.EVENT_BYTES} bytes in the core, expected {EVENT_BYTES}")


class Event(NamedTuple):
    """One event; what its fields mean depends on its stage."""

    stage: str
    note: int
    peer: int
    round: int
    piece: int
    tensor: int
    at_ns: int
    bytes: int
    took_ns: int


class Thread(NamedTuple):
    """What one thread has recorded: packed events, and how many before them were overwritten unread."""

    name: str
    lost: int
    packed: bytes


class Rings:
    """Reads the rings of this process, each event once; the first time as far back as they go."""

    def __init__(self) -> None:
        self._next: list[int] = []

    def read(self) -> list[Thread]:
        """What is new since the last time."""
        rings = _core.read_rings(self._next)
        self._next = [after for _, after, _, _ in rings]
        return [Thread(name, lost, packed) for name, _, lost, packed in rings]


def unpacked(packed: bytes, stages: Sequence[str] = _core.STAGES) -> Iterator[Event]:
    """The events in packed bytes; ``stages`` are the names that the writer had for their numbers."""
    for stage, *rest in _LAYOUT.iter_unpack(packed):
        yield Event(stages[stage] if stage < len(stages) else "none", *rest)


def time_of(packed: bytes, index: int) -> int:
    """When the event of this number happened."""
    at: int = _TIME.unpack_from(packed, index * EVENT_BYTES + _TIME_AT)[0]
    return at
