"""SIGUSR2 asks a process for its last seconds, unless its program uses the signal itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

__all__ = ["on_dump_signal"]

_asked: Callable[[], None] | None = None


def on_dump_signal(callback: Callable[[], None] | None) -> None:
    """Call this when SIGUSR2 comes; None: nobody wants to know. A handler of the program is left alone."""
    global _asked
    _asked = callback
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets only the main thread set handlers
    if callback is not None and signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR2, _handle)


def _handle(number: int, frame: object) -> None:
    if _asked is not None:
        _asked()
