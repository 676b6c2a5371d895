"""How the ranks of one machine exchange descriptors of shared memory: a Unix socket at local rank 0.

Local rank 0 opens the meeting before it registers with the scheduler, so when the job has formed everybody
can come. Everyone brings its arena and gets the board and all other arenas; then each tries to read the
others' memory, and all learn whether every pair can. The socket lies in a folder that only this user can
enter, its name holds the job and the machine, and it is gone when the meeting is over.

    member -> leader   Arrival + arena            leader -> member   Table + board, then Arrival + arena each
    member -> leader   Verdict                    leader -> member   Verdict (of all)
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Union

import msgspec

from byteps import _core
from byteps.control.handshake import TIMEOUT_S
from byteps.errors import ConfigError, JoinError, ProtocolError

__all__ = ["Meeting", "Met", "attend", "folder"]

_LARGEST = 4096
T = TypeVar("T")


class Arrival(msgspec.Struct, frozen=True, tag="arrival"):
    local_rank: int
    epoch: int
    pid: int
    nonce: tuple[int, int]  # address and value of eight bytes of this process


class Table(msgspec.Struct, frozen=True, tag="table"):
    size: int


class Verdict(msgspec.Struct, frozen=True, tag="verdict"):
    readable: bool


_Message = Union[Arrival, Table, Verdict]  # noqa: UP007  msgspec reads the tags out of it at import
_decoder: msgspec.msgpack.Decoder[_Message] = msgspec.msgpack.Decoder(_Message)


@dataclass(frozen=True)
class Met:
    """What a rank brings home: descriptors that are its own now, by local rank; -1 in its own place."""

    board_fd: int
    arena_fds: list[int]
    pids: list[int]
    readable: bool  # every rank can read every other's memory


def folder(configured: str) -> Path:
    """The folder of sockets: BYTEPS_SOCKET_PATH, the user's runtime directory, or one of our own."""
    if configured:
        path = Path(configured)
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(runtime) / "byteps"
    else:
        path = Path(tempfile.gettempdir()) / f"byteps-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise ConfigError(
            f"the folder of Unix sockets {str(path)!r} cannot be used: {error.strerror}; "
            "set BYTEPS_SOCKET_PATH"
        ) from None
    if not configured and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077):
        raise ConfigError(
            f"the folder of Unix sockets {str(path)!r} belongs to another user or is open to others; "
            "remove it, or set BYTEPS_SOCKET_PATH to a folder of your own"
        )
    return path


def socket_path(configured: str, job: int, worker_id: int) -> Path:
    """Where the ranks of a machine meet; the same for all of them."""
    return folder(configured) / f"{job:016x}-{worker_id}.sock"


class Meeting:
    """The leader's side. ``close()`` removes the socket; fine to call twice."""

    def __init__(self, path: Path) -> None:
        _sweep(path.parent)
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.setblocking(False)
        # Bound under another name first: whoever finds the socket can connect to it.
        before = path.with_name(f".{secrets.token_hex(8)}")
        try:
            self._sock.bind(str(before))
            before.chmod(0o600)
            self._sock.listen(_LARGEST)
            before.replace(path)
        except OSError as error:
            self._sock.close()
            raise ConfigError(
                f"no Unix socket at {str(path)!r}: {error.strerror or error}; set BYTEPS_SOCKET_PATH to a "
                "shorter path or another folder, or BYTEPS_ENABLE_IPC=0"
            ) from None

    async def hold(self, size: int, epoch: int, arena: _core.Arena) -> Met:
        """Receive everybody, hand out everything."""
        board = _core.create_board(size)
        members: dict[int, tuple[socket.socket, Arrival, int]] = {}
        arena_fds: list[int] = []
        try:
            while len(members) < size - 1:
                sock, _ = await asyncio.get_running_loop().sock_accept(self._sock)
                await self._admit(sock, size, epoch, members)
                arena_fds = [fd for _, _, fd in members.values()]
            own = Arrival(0, epoch, os.getpid(), _core.memory_nonce())
            present = [(own, arena.fileno())] + [(a, fd) for _, (_, a, fd) in sorted(members.items())]
            for rank, (sock, _, _) in members.items():
                await _send(sock, Table(size), board)
                for arrival, fd in present:
                    if arrival.local_rank != rank:
                        await _send(sock, arrival, fd)
            readable = _can_read_all([arrival for arrival, _ in present], 0)
            for sock, _, _ in members.values():
                verdict, _ = await _expect(sock, Verdict)
                readable = readable and verdict.readable
            for sock, _, _ in members.values():
                await _send(sock, Verdict(readable))
            met = Met(
                board, [-1, *(fd for _, fd in present[1:])], [each.pid for each, _ in present], readable
            )
            board, arena_fds = -1, []
            return met
        finally:
            for fd in (board, *arena_fds):
                if fd >= 0:
                    os.close(fd)
            for sock, _, _ in members.values():
                sock.close()
            self.close()

    async def _admit(
        self,
        sock: socket.socket,
        size: int,
        epoch: int,
        members: dict[int, tuple[socket.socket, Arrival, int]],
    ) -> None:
        """A stranger is sent away: somebody else's process, or one of an earlier epoch."""
        sock.setblocking(False)
        fd = -1
        try:
            arrival, fd = await asyncio.wait_for(_expect(sock, Arrival), TIMEOUT_S)
            wanted = arrival.epoch == epoch and 0 < arrival.local_rank < size
            if fd < 0 or not wanted or arrival.local_rank in members:
                raise ProtocolError("no place for it")
        except (OSError, ProtocolError, asyncio.TimeoutError):
            sock.close()
            if fd >= 0:
                os.close(fd)
            return
        members[arrival.local_rank] = (sock, arrival, fd)

    def close(self) -> None:
        """No trace is left in the file system."""
        if self._sock.fileno() >= 0:
            self._sock.close()
            self._path.unlink(missing_ok=True)


async def attend(path: Path, local_rank: int, size: int, epoch: int, arena: _core.Arena) -> Met:
    """A member's side."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    board = -1
    fds = [-1] * size
    try:
        try:
            await asyncio.get_running_loop().sock_connect(sock, str(path))
        except OSError as error:
            raise JoinError(
                f"local rank {local_rank} cannot reach local rank 0 of its machine at {str(path)!r}: "
                f"{error.strerror or error}; ranks of one machine need a common folder (BYTEPS_SOCKET_PATH), "
                "or set BYTEPS_ENABLE_IPC=0 everywhere"
            ) from None
        own = Arrival(local_rank, epoch, os.getpid(), _core.memory_nonce())
        await _send(sock, own, arena.fileno())
        table, board = await _expect(sock, Table)
        if table.size != size:
            raise ProtocolError(f"the group of this machine has {table.size} ranks, expected {size}")
        present = [own]
        while len(present) < size:
            arrival, fd = await _expect(sock, Arrival)
            fds[arrival.local_rank] = fd
            present.append(arrival)
        await _send(sock, Verdict(_can_read_all(present, local_rank)))
        verdict, _ = await _expect(sock, Verdict)
        pids = [arrival.pid for arrival in sorted(present, key=lambda each: each.local_rank)]
        met = Met(board, fds, pids, verdict.readable)
        board, fds = -1, []
        return met
    finally:
        sock.close()
        for fd in (board, *fds):
            if fd >= 0:
                os.close(fd)


def _can_read_all(present: list[Arrival], own: int) -> bool:
    return all(_core.can_read(each.pid, *each.nonce) for each in present if each.local_rank != own)


def _sweep(where: Path) -> None:
    """Remove the sockets of leaders that were killed before they could."""
    for path in where.glob("*.sock"):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            pass
        finally:
            probe.close()


# One message is one packet, with at most one descriptor.


async def _send(sock: socket.socket, message: _Message, fd: int = -1) -> None:
    payload = msgspec.msgpack.encode(message)
    while True:
        try:
            socket.send_fds(sock, [payload], [fd] if fd >= 0 else [])
            return
        except BlockingIOError:
            await _ready(sock, writing=True)


async def _expect(sock: socket.socket, kind: type[T]) -> tuple[T, int]:
    """The next message, which must be a ``kind``, and its descriptor or -1."""
    while True:
        try:
            payload, fds, _, _ = socket.recv_fds(sock, _LARGEST, 1)
            break
        except BlockingIOError:
            await _ready(sock, writing=False)
    fd = fds[0] if fds else -1
    try:
        if not payload:
            raise ConnectionResetError(errno.ECONNRESET, "a rank of this machine has gone")
        message = _decoder.decode(payload)
        if not isinstance(message, kind):
            raise ProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")
    except BaseException as error:
        if fd >= 0:
            os.close(fd)
        if isinstance(error, msgspec.DecodeError):
            raise ProtocolError(f"a rank of this machine sent what does not decode: {error}") from None
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
