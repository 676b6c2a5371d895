"""A member's numbers: read from the rings now and then, served to Prometheus, and told to the scheduler."""

from __future__ import annotations

import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Sequence

from byteps.observe import metrics
from byteps.observe.digest import Digest
from byteps.observe.http import Answer, HttpServer
from byteps.observe.logging import logger
from byteps.observe.metrics import Sample
from byteps.observe.ring import Rings, unpacked

__all__ = ["EVERY_S", "Reporter", "Watching", "bound", "listening"]

EVERY_S = 1.0


def bound(port: int, what: str, variable: str) -> socket.socket | None:
    """A socket on this port of all addresses; None, with a line in the log, if it cannot be had."""
    try:
        return socket.create_server(("", port))
    except OSError as error:
        logger.warning("no %s: cannot listen on port %d (%s): %s", what, port, variable, error.strerror)
        return None


def listening(port: int) -> socket.socket | None:
    """A socket for metrics; None, with a line in the log, if there can be none."""
    if importlib.util.find_spec("prometheus_client") is None:
        logger.warning("no metrics on port %d: install them with: pip install 'byteps-train[metrics]'", port)
        return None
    return bound(port, "metrics", "BYTEPS_METRICS_PORT")


class Reporter:
    """One thread of a worker or server; ``counted`` is what its core counts by itself.

    Without a port it only tells the scheduler.
    """

    def __init__(
        self,
        role: str,
        rank: int,
        port: int | None,
        counted: Callable[[], list[Sample]],
        tell: Callable[[Sequence[Sample]], None],
    ) -> None:
        self._role, self._rank = role, rank
        self._counted = counted
        self._tell = tell
        self._rings = Rings()
        self._digest = Digest()
        self._samples: list[Sample] = []
        self._wake = threading.Event()
        self._until = float("inf")
        sock = None if port is None else listening(port)
        self._http = None if sock is None else HttpServer(sock, self._page)
        self._thread = threading.Thread(target=self._run, name="byteps-metrics", daemon=True)
        self._thread.start()

    def until(self, at: float) -> bool:
        """Tell until this time of the monotonic clock, but not for ever. False: it has ended."""
        self._until = at
        return self._thread.is_alive()

    def close(self) -> None:
        """Tell the last numbers, and end."""
        self._wake.set()
        self._thread.join()
        if self._http is not None:
            self._http.close()

    def _run(self) -> None:
        while True:
            ended = self._wake.wait(EVERY_S) or time.monotonic() > self._until
            try:
                self._read()
                self._tell(self._samples)
            except Exception as error:  # who observes must not end what it observes
                logger.debug("no numbers for the scheduler: %s: %s", type(error).__name__, error)
            if ended:
                return

    def _read(self) -> None:
        for thread in self._rings.read():
            self._digest.lost_events += thread.lost
            self._digest.take(unpacked(thread.packed))
        self._samples = [*metrics.of_digest(self._digest, self._role), *self._counted()]

    def _page(self, path: str) -> Answer | None:
        if path.partition("?")[0] != "/metrics":
            return None
        body = metrics.text([(self._role, self._rank, self._samples)])
        return Answer(body, "text/plain; version=0.0.4; charset=utf-8")


class Watching:
    """Tells numbers while somebody looks, if nothing tells them anyway. Any thread."""

    def __init__(self, make: Callable[[], Reporter]) -> None:
        self._make = make
        self._reporter: Reporter | None = None
        self._lock = threading.Lock()
        self._closed = False

    def watch(self, for_s: float) -> None:
        """Somebody looks, for so long from now on."""
        until = time.monotonic() + for_s
        with self._lock:
            if self._closed or (self._reporter is not None and self._reporter.until(until)):
                return
            self._reporter = self._make()
            self._reporter.until(until)

    def close(self) -> None:
        """The membership ends."""
        with self._lock:
            self._closed = True
            reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.close()
