"""A control connection after its handshake: whole messages in, whole messages out.

Lives in one asyncio loop and is used only there. Messages are taken apart as bytes arrive and kept in order;
how the connection ended comes after the last of them, so a peer's last words are heard even if a reset
follows them at once (asyncio's own streams would lose them).

What a peer can make us hold is bounded. Of what it sends, some messages wait to be received; then reading
pauses, and it waits in turn. Sending never waits: a peer that lets more than ``MAX_UNREAD_BYTES`` pile up is
cut off. Who answers questions awaits ``room()`` before the next one: a peer that only asks gets no further.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from typing import TypeVar, cast

from byteps import _core
from byteps.control import messages
from byteps.control.messages import Message
from byteps.errors import ProtocolError

MAX_UNREAD_BYTES = 2 * _core.MAX_CONTROL_BYTES  # room for the longest answer behind another one
ROOM_BYTES = 1 << 20  # unread by the peer: with more there is no room for answers
MAX_WAITING = 1_000  # messages that arrived and nobody has asked for yet; above it, reading pauses
MAX_WAITING_BYTES = 1 << 20

wire_log = logging.getLogger("byteps.wire")  # PS_VERBOSE: INFO says connections, DEBUG every frame


def show_wire(verbose: int) -> None:
    """PS_VERBOSE: make the lines about connections (1) and frames (2) visible, whatever the log level."""
    if verbose:
        wire_log.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


C = TypeVar("C", bound="Channel")


class Channel(asyncio.Protocol):
    """One end of a control connection; ``peer`` names the other end in errors and logs.

    ``max_bytes`` is the longest message that it takes now; less until the peer has said who it is.
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        job: int,
        peer: str,
        max_bytes: int = _core.MAX_CONTROL_BYTES,
        keys: _core.SessionKeys | None = None,
    ) -> None:
        self.peer = peer
        self.max_bytes = max_bytes
        self._job = job
        self.cipher = keys.cipher if keys else ""
        self._sealer = _core.Sealer(keys) if keys else None
        self._opener = _core.Opener(keys) if keys else None
        self._buffer = bytearray()
        self._arrived: deque[tuple[Message, int]] = deque()  # and their bytes
        self._waiting_bytes = 0
        self._end: Exception | None = None
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._finished = False
        self._why_cut = ""

    @classmethod
    async def over(
        cls: type[C],
        sock: socket.socket,
        job: int,
        peer: str,
        max_bytes: int = _core.MAX_CONTROL_BYTES,
        keys: _core.SessionKeys | None = None,
    ) -> C:
        """Take over a socket whose handshake is done, and has made these keys if it is encrypted."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(lambda: cls(job, peer, max_bytes, keys), sock=sock)
        return channel

    # Called by users

    @property
    def has_ended(self) -> bool:
        """Nobody is there any more, whatever is still to be received."""
        return self._end is not None

    async def receive(self) -> Message:
        """The next message. ConnectionError when the peer is gone, ProtocolError when it makes no sense."""
        if self._arrived:
            await asyncio.sleep(0)  # a peer that sends without a pause must not keep the others waiting
        while not self._arrived:
            if self._end is not None:
                raise self._end
            self._news.clear()
            await self._news.wait()
        message, size = self._arrived.popleft()
        self._waiting_bytes -= size
        if not self._transport.is_reading() and self._has_space(2) and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def room(self) -> None:
        """Wait until the peer has read most of what was sent, or is gone."""
        await self._room.wait()

    def send(self, message: Message) -> None:
        """Send without waiting. A connection that is gone swallows it: ``receive`` tells that story."""
        if self._finished or self._transport.is_closing():
            return
        payload = messages.encode(message)
        if len(payload) > _core.MAX_CONTROL_BYTES:
            raise ProtocolError(
                f"{type(message).__name__} for {self.peer} has {len(payload)} bytes, "
                f"at most {_core.MAX_CONTROL_BYTES} fit in a control frame"
            )
        wire_log.debug("to %s: %s of %d bytes", self.peer, type(message).__name__, len(payload))
        frame = _core.encode_frame(_core.FRAME_CONTROL, self._job, 0, 0, payload)
        self._transport.write(self._sealer.seal(frame) if self._sealer else frame)
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.cut("it does not read its messages")

    def shut(self, timeout_s: float) -> None:
        """Say goodbye: no more from us, and the end after ``timeout_s`` at the latest.

        Whoever reads goes on until the peer closes too. Closing with its messages unread would reset the
        connection, and our last words could be lost on the way.
        """
        if self._finished or self._transport.is_closing():
            return
        self._finished = True
        try:
            self._transport.write_eof()
        except OSError:
            pass  # it is gone already, and the reader will notice
        asyncio.get_running_loop().call_later(timeout_s, self._transport.abort)

    def cut(self, reason: str) -> None:
        """End it from outside (no heartbeat): ``receive`` gives out what has arrived, then this reason."""
        self._why_cut = self._why_cut or reason
        self._transport.abort()

    def give_up(self, reason: str) -> None:
        """As ``cut``, but what is sent from now on still goes.

        A peer that is silent may only be stopped: it finds its verdict in its socket when it wakes up.
        """
        self._finish(ConnectionError(reason))

    def close(self) -> None:
        """Close at once; what is still in the buffer is dropped."""
        self._finished = True
        self._transport.abort()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return int(self._transport.get_extra_info("socket").fileno())

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=ROOM_BYTES)

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._buffer += self._opened(data)
            while self._end is None and self._take_frame():
                pass
        except ProtocolError as error:
            self._finish(error)
            self._transport.abort()
        if not self._has_space(1):
            self._transport.pause_reading()

    def _opened(self, data: bytes) -> bytes:
        """What has come, decrypted."""
        try:
            return self._opener.feed(data) if self._opener else data
        except _core.WireError as error:
            raise ProtocolError(
                f"the encrypted connection with {self.peer} was tampered with: {error}"
            ) from None

    def connection_lost(self, error: Exception | None) -> None:
        how = "its connection closed"
        if isinstance(error, OSError) and error.errno:
            how += f" ({os.strerror(error.errno)})"
        elif self._buffer or (self._opener and not self._opener.at_boundary):
            how += " in the middle of a message"
        self._room.set()
        self._finish(ConnectionError(self._why_cut or how))

    def _has_space(self, times: int) -> bool:
        """Whether this many times as much as now waits would still be little."""
        few = times * len(self._arrived) < MAX_WAITING
        return few and times * self._waiting_bytes < MAX_WAITING_BYTES

    def _take_frame(self) -> bool:
        """Move one whole frame from the buffer to the messages; False if there is none yet."""
        if len(self._buffer) < _core.HEADER_BYTES:
            return False
        header = bytes(self._buffer[: _core.HEADER_BYTES])
        try:
            kind, _, _, length = _core.decode_header(header, self._job)
            if kind != _core.FRAME_CONTROL:
                raise ProtocolError(f"frame type {kind} on a control connection from {self.peer}")
            if length > self.max_bytes:
                raise ProtocolError(
                    f"a message of {length} bytes from {self.peer}, at most {self.max_bytes} are allowed now"
                )
            end = _core.HEADER_BYTES + length
            if len(self._buffer) < end:
                return False
            payload = bytes(self._buffer[_core.HEADER_BYTES : end])
            _core.check_payload(header, payload)
        except _core.WireError as error:
            raise ProtocolError(f"control frame from {self.peer}: {error}") from error
        del self._buffer[:end]
        message = messages.decode(payload)
        wire_log.debug("from %s: %s of %d bytes", self.peer, type(message).__name__, length)
        self._arrived.append((message, length))
        self._waiting_bytes += length
        self._news.set()
        return True

    def _finish(self, end: Exception) -> None:
        self._end = self._end or end
        self._news.set()
