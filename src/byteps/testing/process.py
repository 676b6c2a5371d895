"""One process of a cluster under test, and the thread that collects what all of them say and how they end.

The thread sleeps in one selector over output pipes, report pipes and pidfds, so a test waits for a line, a
report or an exit without polling. What it collects is guarded by one condition that every wait of a test
uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["Collector", "Process"]

T = TypeVar("T")

_CHUNK_BYTES = 1 << 16


class Process:
    """A scheduler, server or worker that runs or has run."""

    def __init__(
        self, label: str, popen: subprocess.Popen[bytes], pipes: tuple[int, int], changed: threading.Condition
    ) -> None:
        self.label = label
        self.pid = popen.pid
        self.reports: list[Any] = []  # what the worker handed to report()
        self.result: Any = None  # what the worker's function returned
        self.exit_code: int | None = None  # negative: killed by that signal
        self._popen = popen
        self._pipes = pipes  # our ends of its output and of its reports
        self._changed = changed
        self._output = b""
        self._partial = b""

    @property
    def output(self) -> str:
        """Everything it has written to stdout and stderr so far."""
        return self._output.decode(errors="replace")

    @property
    def running(self) -> bool:
        """False once it has ended."""
        return self.exit_code is None

    def signal(self, number: int) -> None:
        """Send a signal to this process alone; one that has ended is left alone."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(number)

    def kill_group(self) -> None:
        """End it and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Its exit code, once it has one."""
        return self._until(lambda: self.exit_code, timeout_s, "its end")

    def wait_line(self, text: str, timeout_s: float = 30.0) -> str:
        """The first whole line of its output that contains ``text``."""

        def found() -> str | None:
            whole = self.output.rpartition("\n")[0]
            return next((line for line in whole.split("\n") if text in line), None)

        return self._until(found, timeout_s, f"a line with {text!r}")

    def wait_report(self, index: int = 0, timeout_s: float = 30.0) -> Any:
        """What the worker handed to ``report()`` the ``index``-th time."""
        box = self._until(
            lambda: self.reports[index : index + 1] or None, timeout_s, f"report number {index}"
        )
        return box[0]

    def _until(self, look: Callable[[], T | None], timeout_s: float, what: str) -> T:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while (found := look()) is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self.running:
                    raise TimeoutError(
                        f"{self.label}: no sign of {what} within {timeout_s:g} s; "
                        f"exit code {self.exit_code}; output:\n{self.output}"
                    )
                self._changed.wait(left)
        return found

    # Called by the collector, which holds the condition.

    def read(self, fd: int) -> bool:
        """Take in what one pipe holds; False when its other end is closed."""
        while True:
            try:
                chunk = os.read(fd, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            if fd == self._pipes[0]:
                self._output += chunk
            else:
                self._take_reports(chunk)

    def _take_reports(self, chunk: bytes) -> None:
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        for line in lines:
            kind, value = json.loads(line)
            if kind == "result":
                self.result = value
            else:
                self.reports.append(value)

    def end(self, open_pipes: Iterable[int]) -> None:
        """It has ended: take in its last words, then make the end visible."""
        for fd in open_pipes:
            self.read(fd)
        self.exit_code = self._popen.wait()  # does not block: the pidfd was readable


class Collector:
    """The collecting thread of one cluster."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._stop_read, self._stop_write = os.pipe()
        self._selector.register(self._stop_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="cluster collector", daemon=True)
        self._thread.start()

    def add(self, process: Process) -> None:
        """Watch a process and own its pipes."""
        for fd in process._pipes:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, process)
        self._selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, process)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._stop_read:
                    return
                with self.changed:
                    self._handle(key.fd, key.data)
                    self.changed.notify_all()

    def _handle(self, fd: int, process: Process) -> None:
        watched = self._selector.get_map()
        if fd not in process._pipes:
            process.end([pipe for pipe in process._pipes if pipe in watched])
        elif process.read(fd):
            return
        self._selector.unregister(fd)
        os.close(fd)

    def close(self) -> None:
        """Stop the thread and close everything it watched."""
        os.write(self._stop_write, b"x")
        self._thread.join(5.0)
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        os.close(self._stop_write)
        self._selector.close()
