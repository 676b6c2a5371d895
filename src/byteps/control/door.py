"""Who may come to the meeting of a machine's ranks, and the packets that are exchanged there.

One that is silent is sent away after a while, and meanwhile nobody waits for it (``reception``).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Annotated, TypeVar, Union

import msgspec

from byteps.control.handshake import TIMEOUT_S
from byteps.control.hello import Pid, Word
from byteps.control.reception import Reception
from byteps.control.said import unpack
from byteps.control.shortage import is_shortage
from byteps.errors import ProtocolError
from byteps.observe.limited import Limited

__all__ = ["BACKLOG", "Arrival", "Door", "Guest", "Table", "Verdict", "expect", "send"]

BACKLOG = 4_096
_LARGEST = 4_096  # bytes of a packet
_LocalRank = Annotated[int, msgspec.Meta(ge=0, le=4_096)]
T = TypeVar("T")


class Arrival(msgspec.Struct, frozen=True, tag="arrival"):
    local_rank: _LocalRank
    gathering: int
    pid: Pid
    nonce: tuple[Word, Word]  # address and value of eight bytes of this process


class Table(msgspec.Struct, frozen=True, tag="table"):
    size: int


class Verdict(msgspec.Struct, frozen=True, tag="verdict"):
    readable: bool


Message = Union[Arrival, Table, Verdict]  # noqa: UP007  msgspec reads the tags out of it at import
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


@dataclass
class Guest:
    """A rank that has come: its connection, what it said, and the descriptor of its arena."""

    sock: socket.socket
    arrival: Arrival
    fd: int

    def keep(self) -> int:
        """The descriptor, which is the caller's from now on."""
        fd, self.fd = self.fd, -1
        return fd

    def close(self) -> None:
        self.sock.close()
        if self.fd >= 0:
            os.close(self.keep())


class Door:
    """Lets the ranks 1 to ``size`` - 1 of one gathering in. Lives in one asyncio loop."""

    def __init__(self, listener: socket.socket, size: int, gathering: int) -> None:
        self._size = size
        self._gathering = gathering
        self._guests: dict[int, Guest] = {}  # by local rank
        self._reception = Reception(
            listener,
            who=lambda sock, _: _name(sock),
            receive=self._receive,
            sent_away=self._say,
            not_accepted=self._not_accepted,
        )
        self._complete = asyncio.Event()
        self._shortage: BaseException | None = None
        self._lines = Limited()

    async def everybody(self) -> dict[int, Guest]:
        """All ranks, by local rank, when the last one has come. OSError when none can be let in any more."""
        if len(self._guests) == self._size - 1:
            return self._guests
        accepting = asyncio.ensure_future(self._reception.run())
        complete = asyncio.ensure_future(self._complete.wait())
        try:
            await asyncio.wait({accepting, complete}, return_when=asyncio.FIRST_COMPLETED)
            if not complete.done():
                await accepting  # raises
            if self._shortage is not None:
                raise self._shortage
            return self._guests
        finally:
            accepting.cancel()
            complete.cancel()

    def close(self) -> None:
        """Send everybody home; descriptors that were not kept are closed."""
        self._reception.close()
        for guest in self._guests.values():
            guest.close()
        self._lines.settle()

    async def _not_accepted(self, error: OSError) -> None:
        if not is_shortage(error):
            raise error
        if not self._reception.send_oldest_away("there are no more file descriptors"):
            raise error
        await asyncio.sleep(0)  # it closes its socket

    async def _receive(self, sock: socket.socket, _: object) -> None:
        """One who has come: a rank that is awaited gets in."""
        sock.setblocking(False)
        fd, name = -1, _name(sock)
        try:
            arrival, fd = await asyncio.wait_for(expect(sock, Arrival), TIMEOUT_S)
            if arrival.gathering != self._gathering:
                raise ProtocolError("it belongs to another gathering")
            if fd < 0 or not 0 < arrival.local_rank < self._size or arrival.local_rank in self._guests:
                raise ProtocolError(f"there is no place for a local rank {arrival.local_rank}")
        except BaseException as error:
            sock.close()
            if fd >= 0:
                os.close(fd)
            if isinstance(error, asyncio.TimeoutError):
                self._say(name, f"it said nothing for {TIMEOUT_S:g} s")
            elif isinstance(error, ProtocolError):
                self._say(name, str(error))
            elif is_shortage(error):  # of ours: we lost what a rank has brought
                self._shortage = error
                self._complete.set()
            elif not isinstance(error, OSError):  # that one has gone: a leader that looked whether we live
                raise
            return
        self._guests[arrival.local_rank] = Guest(sock, arrival, fd)
        if len(self._guests) == self._size - 1:
            self._complete.set()

    def _say(self, name: str, why: str) -> None:
        self._lines.warning(name, why, f"sent {name} away from the meeting of this machine's ranks: {why}")


def _name(sock: socket.socket) -> str:
    """Who is at the other end, as the kernel knows it."""
    try:
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    except OSError:
        return "a process"
    return f"process {pid}"


# One message is one packet, with at most one descriptor.


async def send(sock: socket.socket, message: Message, fd: int = -1) -> None:
    """Send a message, and a copy of a descriptor."""
    payload = msgspec.msgpack.encode(message)
    while True:
        try:
            socket.send_fds(sock, [payload], [fd] if fd >= 0 else [])
            return
        except BlockingIOError:
            await _ready(sock, writing=True)


async def expect(sock: socket.socket, kind: type[T]) -> tuple[T, int]:
    """The next message, which must be a ``kind``, and its descriptor or -1."""
    while True:
        try:
            payload, fds, flags, _ = socket.recv_fds(sock, _LARGEST, 1)
            break
        except BlockingIOError:
            await _ready(sock, writing=False)
    fd = fds[0] if fds else -1
    try:
        if not payload:
            raise ConnectionResetError(errno.ECONNRESET, "it has gone")
        if flags & socket.MSG_CTRUNC and not fds:  # the kernel had a descriptor for us, and no room for it
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        message = unpack(_decoder, payload, "a message of a rank of this machine")
        if not isinstance(message, kind):
            raise ProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")
    except BaseException:
        if fd >= 0:
            os.close(fd)
        raise
    if fd >= 0:
        os.set_inheritable(fd, False)
    return message, fd


async def _ready(sock: socket.socket, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(sock.fileno(), lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        remove(sock.fileno())
