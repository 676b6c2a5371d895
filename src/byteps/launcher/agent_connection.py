"""One connection to an agent: a local process (ssh, or the agent itself) with three pipes."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from typing import cast

from byteps.launcher import frames
from byteps.launcher.output import Lines
from byteps.launcher.reap import die_with
from byteps.launcher.sink import Sink
from byteps.observe.text import clean

__all__ = ["AgentConnection"]

_READ_BYTES = 1 << 16
_KEPT_LINES = 5
_CHATTER = 500


class AgentConnection:
    """What the launcher knows of one host."""

    def __init__(self, name: str, places: Sequence[int], argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.places = list(places)  # that have not ended
        self.own = frozenset(places)
        self.hello: frames.Hello | None = None
        self.started = False  # it was told what to run
        self.said: list[str] = []  # the last lines of ssh itself, or of the agent
        self._frames = frames.Frames(frames.FromAgent, marked=True)
        self._lines = Lines()
        parent = os.getpid()
        self._process = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),
        )
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self.pid = self._process.pid
        self._stdin, self.out, self.err = (pipe.fileno() for pipe in pipes if pipe is not None)
        os.set_blocking(self.out, False)
        os.set_blocking(self.err, False)
        self._sink = Sink(self._stdin)
        self.closed = False

    def send(self, message: frames.ToAgent, selector: selectors.BaseSelector) -> None:
        """Queue a message; a peer that has gone is noticed by reading."""
        if self.closed:
            return
        self._sink.write(frames.encode(message))
        if self._sink.waiting and self._stdin not in selector.get_map():
            selector.register(self._stdin, selectors.EVENT_WRITE, lambda: self._pump(selector))

    def _pump(self, selector: selectors.BaseSelector) -> None:
        self._sink.pump()
        if not self._sink.waiting:
            selector.unregister(self._stdin)

    def receive(self) -> list[frames.FromAgent] | None:
        """Messages that have come; None at the end of the connection. ``FrameError`` for nonsense."""
        try:
            data = os.read(self.out, _READ_BYTES)
        except BlockingIOError:
            return []
        return cast("list[frames.FromAgent]", self._frames.feed(data)) if data else None

    def overhear(self) -> list[str] | None:
        """Lines of ssh or of the agent to the user; None when there will be no more."""
        try:
            data = os.read(self.err, _READ_BYTES)
        except BlockingIOError:
            return []
        # It is text, and draws nothing: escape codes are shown, not followed.
        found = self._lines.feed(data.replace(b"\x1b", rb"\x1b")) if data else self._lines.close()
        lines = [clean(line.decode(errors="replace").rstrip()) for line in found]
        self.said = [*self.said, *(line for line in lines if line)][-_KEPT_LINES:]
        return lines if data else None

    def hang_up(self, selector: selectors.BaseSelector) -> list[str]:
        """Close the connection; returns the last lines of ssh itself."""
        if self.closed:
            return []
        self.closed = True
        last: list[str] = []
        while lines := self.overhear():
            last += lines
        for fd in (self._stdin, self.out, self.err):
            if fd in selector.get_map():
                selector.unregister(fd)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return last

    def code(self) -> int | None:
        """The exit code of the local process, or None if it still runs. To be asked after ``hang_up``."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    @property
    def chatter(self) -> str:
        """What its login scripts printed instead of an answer."""
        return clean(self._frames.chatter[-_CHATTER:])
