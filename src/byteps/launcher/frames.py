"""What the launcher and an agent on another host say to each other, and how bytes become messages. Pure.

    launcher                                  agent
    Open(folder, root_port)          ──▶
                                     ◀──      MARK, then Hello(version, addresses, ports), or Refused(text)
    Start(processes, env)            ──▶
    Signal(number, places), Ping     ──▶
                                     ◀──      Output, NotStarted, Ended, in the order in which they happen

A message is four bytes of length, most significant first, and MessagePack. The plan with the job's secret
travels in ``Start`` and so never in a list of processes. An end of file on either side is the end of the job
there: that is how the death of a launcher, an agent or a connection is noticed.
"""

from __future__ import annotations

import msgspec

from byteps.launcher.spec import ProcessSpec

__all__ = ["LISTEN_FD", "MARK", "Ended", "FrameError", "Frames", "FromAgent", "Hello", "NotStarted", "Open"]
__all__ += ["Output", "Ping", "Refused", "Signal", "Start", "ToAgent", "encode"]

# Before it comes whatever the login scripts of the other host print.
MARK = b"\n\x00byteps agent\x00\n"
MAX_FRAME_BYTES = 1 << 24
MAX_CHATTER_BYTES = 1 << 20  # of login scripts
LISTEN_FD = "remote"  # stands for the number of the scheduler's socket, which only the agent knows


class FrameError(Exception):
    """The other side does not speak this language."""


class Open(msgspec.Struct, frozen=True, tag="open"):
    """The first message: where to work, and the port of the scheduler (0: any, -1: none needed)."""

    folder: str
    root_port: int
    root_host: str = ""  # where to listen; empty: on all addresses


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """An agent is ready. Addresses are those of the connection through which it was started, if it knows."""

    version: str
    host: str
    root_port: int
    master_port: int
    address: str = ""  # its own
    caller: str = ""  # the launcher's


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An agent cannot do what it was asked for."""

    text: str


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run these, numbered in the order of the whole plan, with ``env`` on top of the agent's environment."""

    processes: dict[int, ProcessSpec]
    env: dict[str, str]


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal to the groups of some processes."""

    number: int
    places: list[int]


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """The launcher is still there."""


class Output(msgspec.Struct, frozen=True, tag="output"):
    """Bytes of a process."""

    place: int
    error: bool
    data: bytes


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A process ended, and all that it wrote has been sent."""

    place: int
    code: int
    blames: bool = False  # it said that it ends because of another


class NotStarted(msgspec.Struct, frozen=True, tag="not started"):
    """A process could not be started, nor will those after it be."""

    place: int
    code: int
    text: str


ToAgent = Open | Start | Signal | Ping
FromAgent = Hello | Refused | Output | Ended | NotStarted

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
                found.append(self._decoder.decode(body))
            except msgspec.MsgspecError as error:
                raise FrameError(f"a message that cannot be read: {error}") from None
        return found

    def _skip(self) -> bool:
        before, mark, after = bytes(self._rest).partition(MARK)
        if mark:
            self._marked, self._rest = False, bytearray(after)
        elif len(before) > MAX_CHATTER_BYTES:
            raise FrameError("no agent answered, but a megabyte of something else")
        return bool(mark)
