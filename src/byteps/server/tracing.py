"""The server's part of a trace: from when the first worker begins its own until all have ended theirs."""

from __future__ import annotations

import threading
from pathlib import Path

from byteps.config import Config
from byteps.observe.collector import Collector
from byteps.observe.logging import logger
from byteps.observe.recorder import Self, write_trace

__all__ = ["ServerTrace"]


class ServerTrace:
    """Workers say when; what was in the rings before belongs to it, because their word takes a moment."""

    def __init__(self, config: Config) -> None:
        self._folder = Path(config.trace_dir) if config.trace_on else None
        self._tracing = 0  # workers
        self._collector: Collector | None = None
        self._writing: threading.Thread | None = None

    def hear(self, begins: bool, who: Self) -> None:
        """A worker has begun or ended its trace."""
        if self._folder is None:
            return
        self._tracing += 1 if begins else -1
        if self._tracing > 0 and self._collector is None:
            self._collector = Collector()
        elif self._tracing <= 0:
            self.end(who)

    def end(self, who: Self) -> None:
        """Write what there is."""
        collector, self._collector = self._collector, None
        self._tracing = 0
        if collector is None:
            return
        header = who.header("BYTEPS_TRACE_ON")

        def write() -> None:
            assert self._folder is not None
            try:
                write_trace(self._folder, header, collector.stop())
            except OSError as error:
                logger.warning("cannot write the trace to BYTEPS_TRACE_DIR=%s: %s", self._folder, error)

        self._writing = threading.Thread(target=write, name="byteps-trace", daemon=True)
        self._writing.start()

    def finish(self) -> None:
        """Wait until it is written."""
        if self._writing is not None:
            self._writing.join()
