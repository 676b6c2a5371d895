"""BYTEPS_TRACE_ON: this rank's events of the steps that were asked for, written when the last one ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from byteps.config import Config
from byteps.errors import BytePSError
from byteps.observe.collector import Collector
from byteps.observe.recorder import Self, write_trace

__all__ = ["Tracer"]

logger = logging.getLogger("byteps.worker")


class Tracer:
    """Follows a session from its first step to its last one of interest.

    ``tell`` hears that it begins and that it has ended, so that servers do the same: they know of no steps.
    """

    def __init__(self, config: Config, who: Self, tell: Callable[[bool], None]) -> None:
        self._folder = Path(config.trace_dir)
        self._first = max(config.trace_start_step, 1)
        self._last = config.trace_end_step
        self._who = who
        self._tell = tell
        self._collector: Collector | None = None
        self._writing: threading.Thread | None = None
        self._lock = threading.Lock()
        self._steps = 0
        self.on_step(0)

    def on_step(self, number: int) -> None:
        """A step has ended."""
        with self._lock:
            self._steps = number
            if self._collector is None and self._writing is None and number + 1 == self._first <= self._last:
                self._collector = Collector()
                self._tell(True)
            elif number == self._last:
                self._end()

    def _end(self) -> None:
        collector, self._collector = self._collector, None
        if collector is None:
            return
        header = self._who.header("BYTEPS_TRACE_ON", self._first, min(self._last, self._steps))

        def write() -> None:  # beside the training: it takes a second
            try:
                path = write_trace(self._folder, header, collector.stop())
                logger.info(
                    "wrote the trace of steps %d to %d: %s", header.first_step, header.last_step, path
                )
            except OSError as error:
                logger.warning("cannot write the trace to BYTEPS_TRACE_DIR=%s: %s", self._folder, error)

        self._writing = threading.Thread(target=write, name="byteps-trace", daemon=True)
        self._writing.start()
        self._tell(False)

    # As a follower of the session

    def fail(self, error: BytePSError) -> None:
        """What there is until now is worth having."""
        with self._lock:
            self._end()

    def refuse(self, name: str, text: str) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """The membership ends: write what there is, and wait until it is written."""
        with self._lock:
            self._end()
            if self._collector is None and self._writing is None and self._steps + 1 < self._first:
                logger.warning(
                    "BYTEPS_TRACE_ON=1, but only %d steps have ended, and BYTEPS_TRACE_START_STEP=%d; loops "
                    "without a DistributedOptimizer, DDP, tape or trainer of byteps call bps.step()",
                    self._steps,
                    self._first,
                )
        if self._writing is not None:
            self._writing.join()
