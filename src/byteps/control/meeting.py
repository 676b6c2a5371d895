"""How the ranks of one machine exchange descriptors of shared memory: a Unix socket at local rank 0.

Local rank 0 opens the meeting before it registers with the scheduler, so when the job has formed everybody
can come. Everyone brings its arena and gets the board and all other arenas; then each tries to read the
others' memory, and all learn whether every pair can. The socket lies in a folder that only this user can
enter, its name holds the job and the machine, and it is gone when the meeting is over. Who comes to it and
says nothing, or nonsense, or is of another gathering, is sent away and keeps nobody waiting (``door``).

    member -> leader   Arrival + arena            leader -> member   Table + board, then Arrival + arena each
    member -> leader   Verdict                    leader -> member   Verdict (of all)
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import stat
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from byteps import _core
from byteps.control.door import BACKLOG, Arrival, Door, Table, Verdict, expect, send
from byteps.control.shortage import is_shortage
from byteps.errors import ConfigError, JoinError, ProtocolError

__all__ = ["Meeting", "Met", "attend", "folder"]

AGAIN_S = 0.05


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


def socket_path(configured: str, job: int, root: str, worker_id: int) -> Path:
    """Where the ranks of a machine meet; the same for all of them. ``root``: where their scheduler is.

    Jobs that were started by hand often have one id, and then only their schedulers tell them apart.
    """
    return folder(configured) / f"{job:016x}-{zlib.crc32(root.encode()):08x}-{worker_id}.sock"


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
            self._sock.listen(BACKLOG)
            before.replace(path)
        except OSError as error:
            self._sock.close()
            if is_shortage(error):
                raise
            raise ConfigError(
                f"no Unix socket at {str(path)!r}: {error.strerror or error}; set BYTEPS_SOCKET_PATH to a "
                "shorter path or another folder, or BYTEPS_ENABLE_IPC=0"
            ) from None

    async def hold(self, size: int, gathering: int, arena: _core.Arena) -> Met:
        """Receive everybody, hand out everything. ``gathering``: a number that only those who belong know."""
        board = _core.create_board(size)
        door = Door(self._sock, size, gathering)
        try:
            members = await door.everybody()
            own = Arrival(0, gathering, os.getpid(), _core.memory_nonce())
            others = [members[rank] for rank in sorted(members)]
            present = [(own, arena.fileno()), *((each.arrival, each.fd) for each in others)]
            for member in others:
                await send(member.sock, Table(size), board)
                for arrival, fd in present:
                    if arrival.local_rank != member.arrival.local_rank:
                        await send(member.sock, arrival, fd)
            readable = _can_read_all([arrival for arrival, _ in present], 0)
            for member in others:
                verdict, _ = await expect(member.sock, Verdict)
                readable = readable and verdict.readable
            for member in others:
                await send(member.sock, Verdict(readable))
            fds = [-1, *(member.keep() for member in others)]
            met = Met(board, fds, [each.pid for each, _ in present], readable)
            board = -1
            return met
        finally:
            if board >= 0:
                os.close(board)
            door.close()
            self.close()

    def close(self) -> None:
        """No trace is left in the file system."""
        if self._sock.fileno() >= 0:
            self._sock.close()
            self._path.unlink(missing_ok=True)


async def attend(path: Path, local_rank: int, size: int, gathering: int, arena: _core.Arena) -> Met:
    """A member's side."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.setblocking(False)
    board = -1
    fds = [-1] * size
    try:
        await _connect(sock, path, local_rank)
        own = Arrival(local_rank, gathering, os.getpid(), _core.memory_nonce())
        await send(sock, own, arena.fileno())
        table, board = await expect(sock, Table)
        if table.size != size or board < 0:
            raise ProtocolError(f"the group of this machine has {table.size} ranks, expected {size}")
        present = [own]
        while len(present) < size:
            arrival, fd = await expect(sock, Arrival)
            known = {each.local_rank for each in present}
            if fd < 0 or arrival.local_rank not in range(size) or arrival.local_rank in known:
                if fd >= 0:
                    os.close(fd)
                raise ProtocolError(f"local rank 0 told of a local rank {arrival.local_rank} that cannot be")
            fds[arrival.local_rank] = fd
            present.append(arrival)
        await send(sock, Verdict(_can_read_all(present, local_rank)))
        verdict, _ = await expect(sock, Verdict)
        pids = [arrival.pid for arrival in sorted(present, key=lambda each: each.local_rank)]
        met = Met(board, fds, pids, verdict.readable)
        board, fds = -1, []
        return met
    finally:
        sock.close()
        for fd in (board, *fds):
            if fd >= 0:
                os.close(fd)


async def _connect(sock: socket.socket, path: Path, local_rank: int) -> None:
    while True:
        try:
            sock.connect(str(path))
            return
        except BlockingIOError:  # others stand in line, and asyncio would take that for a connection
            await asyncio.sleep(AGAIN_S)
        except OSError as error:
            raise JoinError(
                f"local rank {local_rank} cannot reach local rank 0 of its machine at {str(path)!r}: "
                f"{error.strerror or error}; ranks of one machine need a common folder (BYTEPS_SOCKET_PATH), "
                "or set BYTEPS_ENABLE_IPC=0 everywhere"
            ) from None


def _can_read_all(present: list[Arrival], own: int) -> bool:
    return all(_core.can_read(each.pid, *each.nonce) for each in present if each.local_rank != own)


def _sweep(where: Path) -> None:
    """Remove the sockets of leaders that were killed before they could."""
    for path in where.glob("*.sock"):
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        probe.setblocking(False)  # a leader with a long line at its door is alive
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        except OSError:
            pass
        finally:
            probe.close()
