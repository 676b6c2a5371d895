"""Copies what the rings hold before it is overwritten, while somebody traces."""

from __future__ import annotations

import threading

from byteps.observe.ring import Rings, Thread

__all__ = ["Collector"]

EVERY_S = 0.1  # a ring holds 65,536 events: a thread that writes 600,000 in a second loses some, and says so
MOST_BYTES = 512 << 20


class Collector:
    """A thread that reads the rings until ``stop()``, which returns all that there was, thread by thread."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._rings = Rings()
        self._parts: list[list[Thread]] = []  # by ring
        self._room = most_bytes
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="byteps-trace", daemon=True)
        self._thread.start()

    def stop(self) -> list[Thread]:
        """Everything since the rings' oldest event; once."""
        self._wake.set()
        self._thread.join()
        self._read()
        return [
            Thread(parts[-1].name, sum(part.lost for part in parts[1:]), b"".join(p.packed for p in parts))
            for parts in self._parts
        ]

    def _run(self) -> None:
        while not self._wake.wait(EVERY_S) and self._room > 0:
            self._read()

    def _read(self) -> None:
        for number, part in enumerate(self._rings.read()):
            if number == len(self._parts):
                self._parts.append([])
            self._parts[number].append(part)
            self._room -= len(part.packed)
