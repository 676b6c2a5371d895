"""The processes of one host of a job, started and watched for a launcher that is somewhere else.

``python -m byteps.launcher.agent`` is started by ssh or by Ray and speaks ``frames`` over its standard input
and output. It decides nothing: it starts what it is told to, passes signals on, and reports output and ends.
Only one thing it does by itself: when its input ends, or is silent for long, it kills everything it has
started. Two processes watch each other as in the launcher (``guard``), so nothing outlives it.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from byteps.control import ports
from byteps.control.listening import bound, listening
from byteps.launcher import ending, frames, guard, here
from byteps.launcher.agent_output import AgentOutput
from byteps.launcher.display import Display
from byteps.launcher.ending import Phase
from byteps.launcher.silence import LEAST_S
from byteps.launcher.spec import ProcessSpec
from byteps.launcher.supervise import Supervisor, earliest
from byteps.version import __version__

__all__ = ["main"]

_READ_BYTES = 1 << 16


def main() -> int:
    """Serve one launcher; the exit code is of no use to anybody but a reader of logs."""
    # Whoever started this program set it, so that no file of the user stands in for a standard module. The
    # user's own commands must not inherit it.
    os.environ.pop("PYTHONSAFEPATH", None)
    here.open_standard_fds()
    return guard.guarded(_serve)


def _serve(front_gone: int) -> int:
    inbox = _Inbox(front_gone)
    order = inbox.expect(frames.Open)
    if not isinstance(order, frames.Open):
        return 1
    try:
        os.chdir(order.folder)
    except OSError as error:
        return _refuse(f"cannot work in {order.folder!r}: {error.strerror}; name a folder with --chdir")
    try:
        listener = _listener(order)
    except OSError as error:
        return _refuse(f"cannot use port {order.root_port} for the scheduler: {error.strerror}"
                       f"{ports.told(order.root_port)}; choose another with --scheduler-port")  # fmt: skip
    with here.reserve() as master:
        root_port = listener.getsockname()[1] if listener else 0
        caller, own = _addresses(os.environ)
        hello = frames.Hello(
            __version__, socket.gethostname(), root_port, master.getsockname()[1], own, caller
        )
        _say(frames.MARK + frames.encode(hello))
        start = inbox.expect(frames.Start)
        if not isinstance(start, frames.Start):
            return 1
        return _Agent(start, listener, inbox).run()


def _addresses(environ: Mapping[str, str]) -> tuple[str, str]:
    """The launcher's address and our own, as this connection uses them; empty where nobody says."""
    words = environ.get("SSH_CONNECTION", "").split()
    return (words[0], words[2]) if len(words) == 4 else ("", "")


def _listener(order: frames.Open) -> socket.socket | None:
    """The scheduler's socket, bound before anybody is told its port."""
    if order.root_port < 0:
        return None
    host = order.root_host or ("::" if ":" in _addresses(os.environ)[1] else "0.0.0.0")
    return listening(host, order.root_port, 1) if order.root_port else bound(host, 0)


def _refuse(text: str) -> int:
    _say(frames.MARK + frames.encode(frames.Refused(text)))
    return 1


def _say(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


class _Inbox:
    """Messages from the launcher."""

    def __init__(self, front_gone: int) -> None:
        self.front_gone = front_gone
        self._frames = frames.Frames(frames.ToAgent)
        self._waiting: list[frames.ToAgent] = []

    def expect(self, kind: type[frames.ToAgent]) -> frames.ToAgent | None:
        """The next message that is not a ping; None if it is another one, or none comes."""
        while True:
            while self._waiting:
                message = self._waiting.pop(0)
                if not isinstance(message, frames.Ping):
                    return message if isinstance(message, kind) else None
            ready, _, _ = select.select([0, self.front_gone], [], [], LEAST_S)
            received = self.read() if ready == [0] else None
            if received is None:
                return None
            self._waiting = received

    def read(self) -> list[frames.ToAgent] | None:
        """What has come; None at the end."""
        data = os.read(0, _READ_BYTES)
        if not data:
            return None
        try:
            return cast("list[frames.ToAgent]", self._frames.feed(data))
        except frames.FrameError as error:
            print(f"byteps agent: {error}", file=sys.stderr)
            return None

    def take(self) -> list[frames.ToAgent]:
        """What came together with the message that was expected."""
        waiting, self._waiting = self._waiting, []
        return waiting


class _Agent(Supervisor):
    """A supervisor that reports instead of deciding. Places are numbered here from 0, and outside as told."""

    def __init__(self, start: frames.Start, listener: socket.socket | None, inbox: _Inbox) -> None:
        self._places = list(start.processes)
        self._inbox = inbox
        self._heard = time.monotonic()
        self._silence_s = start.silence_s
        self._paused = False
        specs = [_with_socket(spec, listener) for spec in start.processes.values()]
        super().__init__(specs, _environment(start.env), False, inbox.front_gone, ending.Times())
        self._labelled = True
        if listener is not None:
            if here.listen(listener, specs):
                listener.detach()
            else:
                listener.close()
        self._selector.register(0, selectors.EVENT_READ, self._receive)

    def _open_display(self, order: Sequence[int]) -> Display:
        self._output = AgentOutput(self._places, self._selector, self._end_all)
        return self._output

    def _summary(self) -> None:
        """The launcher's business."""

    # ---- events

    def _handle(self, event: ending.Event) -> None:
        state = self._state
        if isinstance(event, ending.Ended):
            self._output.drain_process(event.process)
            self._send(frames.Ended(self._places[event.process], event.code))
            running = state.running - {event.process}
            phase = state.phase if running else Phase.DONE
            self._state = replace(state, running=running, phase=phase)
        elif isinstance(event, ending.Told):
            self._send(frames.Told(self._places[event.process], event.statement, event.own))
        elif isinstance(event, ending.Halted):
            self._send(frames.Halted(self._places[event.process], event.pid))
        elif isinstance(event, ending.NotStarted):
            self._send(frames.NotStarted(self._places[event.process], event.code, self._output.noted))
            if not state.running:
                self._state = replace(state, phase=Phase.DONE)
        elif isinstance(event, ending.Signalled | ending.Abandoned):
            self._end_all()
        elif state.phase is Phase.KILLING:
            super()._handle(event)

    def _start_all(self) -> None:
        super()._start_all()
        for message in self._inbox.take():
            self._obey(message)

    def _receive(self) -> None:
        received = self._inbox.read()
        if received is None:
            self._selector.unregister(0)
            self._end_all()
            return
        self._heard, self._paused = time.monotonic(), False
        for message in received:
            self._obey(message)

    def _obey(self, message: frames.ToAgent) -> None:
        if isinstance(message, frames.Signal):
            own = {self._places.index(place) for place in message.places if place in self._places}
            self._paused = message.number == signal.SIGSTOP  # a launcher that is stopped cannot ping
            self._signal(message.number, own & self._state.running)

    def _deadline(self) -> float | None:
        silence = None if self._paused else self._heard + self._silence_s
        return earliest(self._state.deadline, silence)

    def _tick(self) -> None:
        if not self._paused and time.monotonic() > self._heard + self._silence_s and not self._alone:
            print(f"byteps agent: nothing heard of the launcher for {self._silence_s:g} s", file=sys.stderr)
            self._end_all()
        super()._tick()

    def _end_all(self) -> None:
        """Kill what runs: nobody is there to be told."""
        if not self._alone:
            self._alone = True
            super()._handle(ending.Abandoned())

    def _send(self, message: frames.FromAgent) -> None:
        self._output.send(message)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """This host's own and what the launcher sends; ``python`` means the interpreter that runs this."""
    folder = str(Path(sys.executable).parent)
    path = env.get("PATH") or os.environ.get("PATH") or os.defpath
    return {**os.environ, **env, "PATH": f"{folder}{os.pathsep}{path}"}


def _with_socket(spec: ProcessSpec, listener: socket.socket | None) -> ProcessSpec:
    """The process with the real number of the scheduler's socket, if it is to have it."""
    if listener is None or spec.env.get("BYTEPS_LISTEN_FD") != frames.LISTEN_FD:
        return spec
    fd = listener.fileno()
    return replace(spec, env={**spec.env, "BYTEPS_LISTEN_FD": str(fd)}, fds=(fd,))


if __name__ == "__main__":
    sys.exit(main())
