"""What the launcher and an agent on another host say to each other, and how bytes become messages. Pure.

    launcher                                  agent
    Open(folder, root_port)          ──▶
                                     ◀──      MARK, then Hello(version, addresses, ports), or Refused(text)
    Start(processes, env)            ──▶
    Signal(number, places), Ping     ──▶
                                     ◀──      Output, Told, Halted, NotStarted, Ended, in the order in which
                                              they happen

A message is four bytes of length, most significant first, and MessagePack. The plan with the job's secret
travels in ``Start`` and so never in a list of processes. An end of file on either side is the end of the job
there: that is how the death of a launcher, an agent or a connection is noticed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from byteps.control.blame import Statement
from byteps.control.said import Said, Text, unpack
from byteps.errors import ProtocolError
from byteps.launcher.silence import LEAST_S
from byteps.launcher.spec import ProcessSpec

__all__ = ["LISTEN_FD", "MARK", "Ended", "FrameError", "Frames", "FromAgent", "Halted", "Hello", "NotStarted"]
__all__ += ["Open", "Output", "Ping", "Refused", "Signal", "Start", "ToAgent", "Told", "encode"]

# Before it comes whatever the login scripts of the other host print.
MARK = b"\n\x00byteps agent\x00\n"
MAX_FRAME_BYTES = 1 << 24
MAX_CHATTER_BYTES = 1 << 20  # of login scripts
LISTEN_FD = "remote"  # stands for the number of the scheduler's socket, which only the agent knows

Place = Annotated[int, Meta(ge=0, le=1 << 20)]  # of a process in the plan
Port = Annotated[int, Meta(ge=-1, le=65_535)]
Code = Annotated[int, Meta(ge=0, le=255)]


class FrameError(Exception):
    """The other side does not speak this language."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """The first message: where to work, and the port of the scheduler (0: any, -1: none needed)."""

    folder: str
    root_port: Port
    root_host: str = ""  # where to listen; empty: on all addresses


class Hello(Said, frozen=True, tag="hello"):
    """An agent is ready. Addresses are those of the connection through which it was started, if it knows."""

    version: Text
    host: Text
    root_port: Port
    master_port: Port
    address: Text = ""  # its own
    caller: Text = ""  # the launcher's


class Refused(Said, frozen=True, tag="refused"):
    """An agent cannot do what it was asked for."""

    text: Text


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run these, numbered in the order of the whole plan, with ``env`` on top of the agent's environment.

    After ``silence_s`` without a word the launcher is to be taken for dead.
    """

    processes: dict[Place, ProcessSpec]
    env: dict[str, str]
    silence_s: Annotated[float, Meta(gt=0, le=1e9)] = LEAST_S


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal to the groups of some processes."""

    number: Annotated[int, Meta(ge=1, le=64)]
    places: list[Place]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """The launcher is still there."""


class Output(msgspec.Struct, frozen=True, tag="output"):
    """Bytes of a process."""

    place: Place
    error: bool
    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A process ended, and all that it wrote has been sent."""

    place: Place
    code: Code


class Told(msgspec.Struct, frozen=True, tag="told"):
    """A process said what it knows of a failure; ``own`` as in ``facts``."""

    place: Place
    statement: Statement
    own: bool


class Halted(msgspec.Struct, frozen=True, tag="halted"):
    """A process was found stopped."""

    place: Place
    pid: int


class NotStarted(Said, frozen=True, tag="not started"):
    """A process could not be started, nor will those after it be."""

    place: Place
    code: Code
    text: Text


ToAgent = Open | Start | Signal | Ping
FromAgent = Hello | Refused | Output | Told | Halted | Ended | NotStarted

_encoder = msgspec.msgpack.Encoder()


def encode(message: ToAgent | FromAgent) -> bytes:
    """A message as it travels."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class Frames:
    """Cuts a stream of bytes into messages.

    >>> Frames(ToAgent).feed(encode(Ping()))
    [Ping()]
    """

    def __init__(self, kind: object, *, marked: bool = False) -> None:
        """``kind``: the union of messages to expect. ``marked``: skip everything before ``MARK``."""
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._marked = marked
        self._rest = bytearray()

    @property
    def chatter(self) -> str:
        """What came instead of ``MARK`` so far."""
        return self._rest.decode(errors="replace").strip() if self._marked else ""

    def feed(self, data: bytes) -> list[ToAgent | FromAgent]:
        """The messages that ``data`` completes. ``FrameError`` when it is none of ours."""
        self._rest += data
        if self._marked and not self._skip():
            return []
        found: list[ToAgent | FromAgent] = []
        while len(self._rest) >= 4:
            size = int.from_bytes(self._rest[:4], "big")
            if size > MAX_FRAME_BYTES:
                raise FrameError(f"a message of {size} bytes; at most {MAX_FRAME_BYTES} are allowed")
            if len(self._rest) < 4 + size:
                break
            body = bytes(self._rest[4 : 4 + size])
            del self._rest[: 4 + size]
            try:
                found.append(unpack(self._decoder, body, "a message"))
            except ProtocolError as error:
                raise FrameError(str(error)) from None
        return found

    def _skip(self) -> bool:
        before, mark, after = bytes(self._rest).partition(MARK)
        if mark:
            self._marked, self._rest = False, bytearray(after)
        elif len(before) > MAX_CHATTER_BYTES:
            raise FrameError("no agent answered, but a megabyte of something else")
        return bool(mark)
