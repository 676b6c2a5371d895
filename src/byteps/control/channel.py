"""A control connection after its handshake: whole messages in, whole messages out.

Lives in one asyncio loop and is used only there. Sending never waits: a message goes to the socket or to
the transport's buffer, and a peer that lets more than ``MAX_UNREAD_BYTES`` pile up is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from byteps import _core
from byteps.control import messages
from byteps.control.messages import Message
from byteps.errors import ProtocolError

MAX_UNREAD_BYTES = 256 << 20

wire_log = logging.getLogger("byteps.wire")  # PS_VERBOSE: INFO says connections, DEBUG every frame


def show_wire(verbose: int) -> None:
    """PS_VERBOSE: make the lines about connections (1) and frames (2) visible, whatever the log level."""
    if verbose:
        wire_log.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


class Channel:
    """One end of a control connection; ``peer`` names the other end in errors and logs."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, job: int, sender: int, peer: str
    ) -> None:
        self.peer = peer
        self._reader = reader
        self._writer = writer
        self._job = job
        self._sender = sender
        self._finished = False
        self._why_cut = ""

    @classmethod
    async def over(cls, sock: socket.socket, job: int, peer: str, sender: int = 0) -> Channel:
        """Take over a socket whose handshake is done."""
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, job, sender, peer)

    async def receive(self) -> Message:
        """The next message. ConnectionError when the peer is gone, ProtocolError when it makes no sense."""
        try:
            header = await self._reader.readexactly(_core.HEADER_BYTES)
            kind, _, _, length = _core.decode_header(header, self._job)
            if kind != _core.FRAME_CONTROL:
                raise ProtocolError(f"frame type {kind} on a control connection from {self.peer}")
            payload = await self._reader.readexactly(length)
            _core.check_payload(header, payload)
        except asyncio.IncompleteReadError as error:
            how = "its connection closed" + (" in the middle of a message" if error.partial else "")
            raise ConnectionError(self._why_cut or how) from error
        except _core.WireError as error:
            raise ProtocolError(f"control frame from {self.peer}: {error}") from error
        message = messages.decode(payload)
        wire_log.debug("from %s: %s of %d bytes", self.peer, type(message).__name__, length)
        return message

    def send(self, message: Message) -> None:
        """Send without waiting. A connection that is gone swallows it: ``receive`` tells that story."""
        transport = self._writer.transport
        if self._finished or transport.is_closing():
            return
        payload = messages.encode(message)
        if len(payload) > _core.MAX_CONTROL_BYTES:
            raise ProtocolError(
                f"{type(message).__name__} for {self.peer} has {len(payload)} bytes, "
                f"at most {_core.MAX_CONTROL_BYTES} fit in a control frame"
            )
        wire_log.debug("to %s: %s of %d bytes", self.peer, type(message).__name__, len(payload))
        self._writer.write(_core.encode_frame(_core.FRAME_CONTROL, self._job, 0, self._sender, payload))
        if transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            wire_log.error("%s does not read its messages: connection cut", self.peer)
            transport.abort()

    def shut(self, timeout_s: float) -> None:
        """Say goodbye: no more from us, and the end after ``timeout_s`` at the latest.

        Whoever reads goes on until the peer closes too. Closing with its messages unread would reset the
        connection, and our last words could be lost on the way.
        """
        if self._finished or self._writer.transport.is_closing():
            return
        self._finished = True
        try:
            self._writer.write_eof()
        except OSError:
            pass  # it is gone already, and the reader will notice
        asyncio.get_running_loop().call_later(timeout_s, self._writer.transport.abort)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return int(self._writer.get_extra_info("socket").fileno())

    def cut(self, reason: str) -> None:
        """End it from outside (no heartbeat): ``receive`` gives out what has arrived, then this reason."""
        self._why_cut = self._why_cut or reason
        self._writer.transport.abort()

    def close(self) -> None:
        """Close at once; what is still in the buffer is dropped."""
        self._finished = True
        self._writer.transport.abort()
