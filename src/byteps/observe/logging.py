"""The log of this package: one logger, ``byteps``, lines ``time level role rank: message`` on stderr.

Set up once per process, by ``setup``. Nothing outside our own logger is touched: no root handler, no global
level names. A program that has put its own handler on the ``byteps`` logger keeps it and its level.
The native core reports events with the level numbers below; ``log_native`` passes them on.
"""

from __future__ import annotations

import logging
import sys

from byteps.config import Config
from byteps.observe.text import clean

__all__ = ["LEVELS", "living", "log_native", "logger", "set_identity", "setup", "warn_once"]

LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "FATAL": 50}
_NAMES = {number: name for name, number in LEVELS.items()}

logger = logging.getLogger("byteps")


class _Formatter(logging.Formatter):
    """Knows who this process is; ranks are only known after start-up, so the identity can change."""

    default_msec_format = "%s.%03d"
    identity = ""

    def __init__(self, hide_time: bool) -> None:
        super().__init__()
        self.hide_time = hide_time

    def format(self, record: logging.LogRecord) -> str:
        level = _NAMES.get(record.levelno, record.levelname)
        words = [] if self.hide_time else [self.formatTime(record)]
        words += [level, self.identity] if self.identity else [level]
        text = f"{' '.join(words)}: {record.getMessage()}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return text


class _StderrHandler(logging.Handler):
    """Asks for sys.stderr at every line, because programs and test runners replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            living("")
            sys.stderr.write(f"{self.format(record)}\n")  # one write: lines of several processes stay whole
            sys.stderr.flush()
        except Exception:  # as every handler: logging must not break the program
            self.handleError(record)


_handler: _StderrHandler | None = None
_living = False  # a line that is not ended is on the screen
_said: set[str] = set()


def setup(config: Config, role: str = "", rank: int | None = None) -> logging.Logger:
    """Make the logger ready, say ``config.warnings`` once, and return it. A second call only adjusts it."""
    global _handler
    if _handler is None and not logger.handlers:
        _handler = _StderrHandler()
        logger.addHandler(_handler)
        logger.propagate = False  # a root handler of the user would print every line a second time
    if _handler is not None:
        _handler.setFormatter(_Formatter(config.log_hide_time))
    if _handler is not None or logger.level == logging.NOTSET:
        logger.setLevel(LEVELS[config.log_level])
    set_identity(role or config.role, rank)
    for text in config.warnings:
        warn_once(text)
    return logger


def set_identity(role: str, rank: int | None = None) -> None:
    """Name this process in every later line, for example ``worker 3``."""
    if _handler is not None and isinstance(_handler.formatter, _Formatter):
        _handler.formatter.identity = role if rank is None else f"{role} {rank}"


def warn_once(text: str) -> None:
    """Log a warning that this process has not logged before."""
    if text not in _said:
        _said.add(text)
        logger.warning("%s", text)


def living(text: str) -> bool:
    """Show ``text`` in place of what this function showed before; False where nobody looks on: no terminal.

    An empty text takes the line away. So does the next line of the log.
    """
    global _living
    try:
        if _handler is None or not sys.stderr.isatty():
            return False
        if text or _living:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
            _living = bool(text)
    except (AttributeError, OSError, ValueError):  # no standard error, or one that was closed
        return False
    return True


def log_native(level: int, text: str) -> None:
    """Log a line that came out of the native core, which may quote a peer; it is data, never a format."""
    logger.log(level, "%s", clean(text))
