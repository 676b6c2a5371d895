"""The processes of a benchmark, seen from the one that directs them.

A talking member reads one JSON object per line on its standard input and answers each with one line on a
pipe (``member.serve`` is its other half). Only members that were asked something work; all others wait in
a read and cost nothing. Every wait has a deadline and also watches every process: one that dies ends the
benchmark with its last lines. No thread, no polling: pipes and pidfds in one selector.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from byteps.errors import BytePSError

__all__ = ["Members"]

_LAST_LINES = 15
_KILL_AFTER_S = 5.0

Message = dict[str, Any]


@dataclass
class _Member:
    name: str
    process: subprocess.Popen[bytes]
    pidfd: int
    answers: int  # the pipe that answers come through
    log: Path
    pending: bytearray = field(default_factory=bytearray)  # bytes of an answer that is not complete yet


class Members:
    """Processes with names. As a context manager it ends all of them, whatever happened.

    with Members(folder) as members:
        members.start("worker 0", "byteps.tools.bench.worker", env)
        answers = members.ask({"worker 0": {"do": "setup"}}, timeout_s=60)
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # of their logs
        self._members: dict[str, _Member] = {}

    def __enter__(self) -> Members:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def start(
        self,
        name: str,
        module: str,
        env: Mapping[str, str],
        fds: Sequence[int] = (),
        talks: bool = True,
        prefix: Sequence[str] = (),
        python: str = sys.executable,
    ) -> None:
        """Start ``prefix python -m module``; ``fds`` are inherited under the same numbers."""
        log = self._folder / f"{name.replace(' ', '-')}.log"
        # Answers have a pipe of their own, its number is the argument: libraries may print.
        answers, channel = os.pipe()
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*prefix, python, "-m", module, *([str(channel)] if talks else [])],
                    env=dict(env),
                    stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(*fds, channel) if talks else tuple(fds),
                    # Ctrl-C is for the director only, which then ends everybody in order.
                    start_new_session=True,
                )
        except BaseException:
            os.close(answers)
            raise
        finally:
            os.close(channel)
        self._members[name] = _Member(name, process, os.pidfd_open(process.pid), answers, log)

    def pid(self, name: str) -> int:
        return self._members[name].process.pid

    def ask(self, requests: Mapping[str, Message], timeout_s: float) -> dict[str, Message]:
        """Send every request, then wait for all answers. BytePSError when a member fails, dies or is late."""
        deadline = time.monotonic() + timeout_s
        for name, request in requests.items():
            self._send(self._members[name], request)
        answers: dict[str, Message] = {}
        with selectors.DefaultSelector() as selector:
            for member in self._members.values():
                selector.register(member.pidfd, selectors.EVENT_READ, (member, True))
            for name in requests:
                member = self._members[name]
                selector.register(member.answers, selectors.EVENT_READ, (member, False))
            while len(answers) < len(requests):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    silent = ", ".join(name for name in requests if name not in answers)
                    what = next(iter(requests.values())).get("do")
                    raise BytePSError(
                        f"benchmark step {what!r}: no answer from {silent} within {timeout_s:g} s\n"
                        + "\n".join(
                            self._tail(self._members[name]) for name in requests if name not in answers
                        )
                    )
                # Answers before deaths: the last words of a member say more than its exit status.
                for key, _ in sorted(ready, key=lambda event: bool(event[0].data[1])):
                    member, died = key.data
                    if died:
                        raise self._death(member)
                    answer = self._receive(member)
                    if answer is not None:
                        answers[member.name] = answer
                        selector.unregister(member.answers)
        return answers

    def leave(self, talking: Mapping[str, Message], timeout_s: float) -> None:
        """Tell the talking members to go and wait until everybody has exited; the rest goes by itself.

        Raises BytePSError when somebody stays or exits with an error.
        """
        deadline = time.monotonic() + timeout_s
        for name, request in talking.items():
            self._send(self._members[name], request)
        for member in self._members.values():
            try:
                status = member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise BytePSError(
                    f"{member.name} still runs {timeout_s:g} s after the end\n{self._tail(member)}"
                ) from None
            if status != 0:
                raise self._death(member)

    def _send(self, member: _Member, request: Message) -> None:
        assert member.process.stdin is not None
        try:
            member.process.stdin.write(json.dumps(request).encode() + b"\n")
            member.process.stdin.flush()
        except BrokenPipeError:
            raise self._death(member) from None

    def _receive(self, member: _Member) -> Message | None:
        data = os.read(member.answers, 1 << 16)
        if not data:
            raise self._death(member)
        member.pending += data
        line, newline, rest = member.pending.partition(b"\n")
        if not newline:
            return None
        member.pending = rest
        answer: Message = json.loads(line)
        if "error" in answer:
            raise BytePSError(f"{member.name} failed: {answer['error']}\n{self._tail(member)}")
        return answer

    def _death(self, member: _Member) -> BytePSError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.wait(_KILL_AFTER_S)
        status = member.process.returncode
        if status is None:
            how = "closed its channel but still runs"
        elif status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        else:
            how = f"exited with status {status}"
        return BytePSError(f"{member.name} {how} in the middle of the benchmark\n{self._tail(member)}")

    def _tail(self, member: _Member) -> str:
        lines = member.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join(f"  [{member.name}] {line}" for line in lines) or f"  [{member.name}] wrote nothing"

    def _kill(self) -> None:
        for member in self._members.values():
            if member.process.poll() is None:
                member.process.kill()
        for member in self._members.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(_KILL_AFTER_S)
            if member.process.stdin is not None:
                with contextlib.suppress(OSError):
                    member.process.stdin.close()
            os.close(member.answers)
            os.close(member.pidfd)
        self._members.clear()
