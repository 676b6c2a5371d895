"""The page about a job: who is in it, what they do, who is waited for. Read-only, and only with its token."""

from __future__ import annotations

import hmac
import importlib.resources
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import msgspec

from byteps.control.messages import Numbers, Status
from byteps.observe.http import Answer, HttpServer
from byteps.observe.reporter import bound
from byteps.observe.text import clean

__all__ = ["Dashboard", "Line", "Snapshot"]

LINES = 100  # of the log, on the page


class Line(msgspec.Struct, frozen=True):
    """Something that happened."""

    at_s: float  # since 1970
    level: str
    text: str


class Snapshot(msgspec.Struct, frozen=True):
    """What the page is told every second."""

    status: Status
    numbers: Numbers
    log: list[Line]


class _Log(logging.Handler):
    """Keeps the last lines of the scheduler's own log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[Line] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(Line(time.time(), record.levelname, clean(record.getMessage())[:500]))


class Dashboard:
    """Serves the page. ``look`` is called in the thread of its server and must be safe there."""

    def __init__(self, port: int, token: str, look: Callable[[], tuple[Status, Numbers]]) -> None:
        self.token = token or secrets.token_urlsafe(16)
        self._look = look
        self._log = _Log()
        logging.getLogger("byteps").addHandler(self._log)
        sock = bound(port, "page", "BYTEPS_DASHBOARD_PORT")
        self._http = None if sock is None else HttpServer(sock, self._page, "byteps-page")

    @property
    def is_served(self) -> bool:
        """Whether there is a page."""
        return self._http is not None

    def close(self) -> None:
        """No more readers."""
        logging.getLogger("byteps").removeHandler(self._log)
        if self._http is not None:
            self._http.close()

    def _page(self, path: str) -> Answer | None:
        parts = urlsplit(path)
        given = parse_qs(parts.query, max_num_fields=8).get("token", [""])[0]
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            text = (
                b"this page needs its token: bpslaunch, or the log of the scheduler, has the whole address\n"
            )
            return Answer(text, status="403 Forbidden")
        if parts.path == "/":
            html = importlib.resources.files("byteps.scheduler").joinpath("dashboard.html").read_bytes()
            return Answer(html, "text/html; charset=utf-8")
        if parts.path == "/events":
            return Answer(self._event(), "text/event-stream", more=self._event)
        return None

    def _event(self) -> bytes:
        snapshot = Snapshot(*self._look(), list(self._log.lines))
        return b"data: " + msgspec.json.encode(snapshot) + b"\n\n"
