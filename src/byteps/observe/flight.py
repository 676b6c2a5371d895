"""The flight recorder: what this process has seen in its last seconds, written when something goes wrong.

The rings of the core are always there, so nothing has to be switched on before. Files are few and small: a
process writes at most so many, and not one after the other for the same reason.
"""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from byteps.config import Config
from byteps.observe.logging import logger
from byteps.observe.recorder import Self, write_last_seconds

__all__ = ["FlightRecorder", "folder_of"]

MOST_FILES = 16  # of one process
PAUSE_S = 10.0  # between two files, unless a person asks


def folder_of(config: Config) -> Path:
    """Where the files go: BYTEPS_FLIGHT_DIR, or a folder of this user beside other temporary files."""
    if config.flight_dir:
        return Path(config.flight_dir)
    return Path(tempfile.gettempdir()) / f"byteps-flight-{os.getuid()}"


class FlightRecorder:
    """One for each membership. Any thread; ``who`` says who this is, as far as it is known by then."""

    def __init__(self, config: Config, who: Callable[[], Self]) -> None:
        self._folder = folder_of(config) if config.flight_s > 0 else None
        self._last_s = config.flight_s
        self._who = who
        self._lock = threading.Lock()
        self._written = 0
        self._free_at = 0.0
        self.last = ""  # the last file

    def write(self, reason: str, *, asked: bool = False, final: bool = False) -> str:
        """Write, and say where: the path, or nothing. What is wrong with the disk is logged, not raised.

        ``asked``: by a person, who shall get it. ``final``: what follows from this is not worth a file.
        """
        if self._folder is None:
            return ""
        with self._lock:
            now = time.monotonic()
            if self._written >= MOST_FILES or (now < self._free_at and not asked):
                return self.last
            self._free_at = float("inf") if final else now + PAUSE_S
            try:
                path = write_last_seconds(self._folder, self._who().header(reason[:1_000]), self._last_s)
            except OSError as error:
                logger.warning("the flight recorder cannot write to %s: %s", self._folder, error)
                return ""
            self._written += 1
            self.last = str(path)
        logger.warning("the last seconds of this process are in %s (%s)", path, reason)
        return self.last

    def write_soon(self, reason: str) -> None:
        """A person asks, or the scheduler: in a thread, because nobody who asks may wait for a disk."""
        work = functools.partial(self.write, reason, asked=True)
        threading.Thread(target=work, name="byteps-flight", daemon=True).start()
