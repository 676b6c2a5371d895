"""The meeting of a machine's ranks: everybody gets everything, strangers get nothing, no trace is left."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from pathlib import Path

import msgspec
import pytest

from byteps import _core
from byteps.control import door, meeting, reception
from byteps.errors import ConfigError, JoinError, ProtocolError

SIZE = 3
EPOCH = 5


async def _meet(path: Path, stranger: bytes | None = None, silent: int = 0) -> list[meeting.Met]:
    arenas = [_core.Arena(1 << 20) for _ in range(SIZE)]
    strangers = []
    held = meeting.Meeting(path)
    assert os.stat(path).st_mode & 0o077 == 0  # noqa: PTH116
    if stranger is not None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(path))
            if stranger:
                sock.send(stranger)
    for _ in range(silent):
        strangers.append(sock := socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        sock.connect(str(path))
    ranks = [held.hold(SIZE, EPOCH, arenas[0])]
    ranks += [meeting.attend(path, rank, SIZE, EPOCH, arenas[rank]) for rank in range(1, SIZE)]
    try:
        return list(await asyncio.wait_for(asyncio.gather(*ranks), 20))
    finally:
        for sock in strangers:
            assert sock.recv(1) == b""  # the leader has closed it
            sock.close()


def _inode(fd: int) -> int:
    return os.fstat(fd).st_ino


def _close(met: list[meeting.Met]) -> None:
    for each in met:
        for fd in (each.board_fd, *each.arena_fds):
            if fd >= 0:
                os.close(fd)


@pytest.mark.parametrize("stranger", [None, b"", b"\xc1 noise"])
def test_everybody_gets_the_board_and_all_arenas(tmp_path: Path, stranger: bytes | None) -> None:
    met = asyncio.run(_meet(tmp_path / "x.sock", stranger))
    assert len({_inode(each.board_fd) for each in met}) == 1
    for rank in range(SIZE):
        assert [fd < 0 for fd in met[rank].arena_fds] == [other == rank for other in range(SIZE)]
        others = {_inode(met[other].arena_fds[rank]) for other in range(SIZE) if other != rank}
        assert len(others) == 1
        assert met[rank].pids == [os.getpid()] * SIZE
        assert met[rank].readable
    assert not any(os.get_inheritable(fd) for fd in (met[0].board_fd, *met[1].arena_fds) if fd >= 0)
    _close(met)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("silent", [3, reception.MAX_PENDING + 10])
def test_those_who_come_and_say_nothing_keep_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    """Their time is never up here, so a meeting that waited for one of them would not end."""
    monkeypatch.setattr(door, "TIMEOUT_S", 10_000.0)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    _close(asyncio.run(_meet(tmp_path / "x.sock", silent=silent)))
    gc.collect()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before + SIZE  # arenas may still be there
    assert not list(tmp_path.iterdir())


NESTED = b"\x82\xa4type\xa7verdict\xa1x" + b"\x91" * 4_000 + b"\xc0"
HUGE = msgspec.msgpack.encode(
    {"type": "arrival", "local_rank": 1, "gathering": EPOCH, "pid": 1 << 40, "nonce": [1, 1]}
)


@pytest.mark.parametrize(
    "packet",
    [
        NESTED,
        HUGE,
        b"\x82\xa4type\xa7arrival\xa1\xff\xff",
        msgspec.msgpack.encode(door.Arrival(1, EPOCH + 1, 5, (1, 1))),
        msgspec.msgpack.encode(door.Arrival(0, EPOCH, 5, (1, 1))),
        msgspec.msgpack.encode(door.Arrival(SIZE, EPOCH, 5, (1, 1))),
        msgspec.msgpack.encode(door.Arrival(1, EPOCH, 5, (1, 1))),  # without a descriptor
        msgspec.msgpack.encode(door.Verdict(True)),
    ],
    ids=["nested", "huge", "no text", "epoch", "the leader", "too many", "no arena", "verdict"],
)
def test_nonsense_at_the_door_is_sent_away(tmp_path: Path, packet: bytes) -> None:
    met = asyncio.run(_meet(tmp_path / "x.sock", packet))
    assert all(each.readable for each in met)
    _close(met)


def test_a_leader_that_tells_nonsense_is_an_error(tmp_path: Path) -> None:
    """A member must not take a place that does not exist, or the same one twice."""

    async def scenario(arrivals: list[door.Arrival]) -> None:
        arena = _core.Arena(1 << 20)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(tmp_path / "x.sock"))
            listener.listen()
            listener.setblocking(False)
            attending = asyncio.ensure_future(meeting.attend(tmp_path / "x.sock", 1, SIZE, EPOCH, arena))
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
            with sock:
                await door.send(sock, door.Table(SIZE), arena.fileno())
                for arrival in arrivals:
                    await door.send(sock, arrival, arena.fileno())
                await asyncio.wait_for(attending, 20)

    for ranks in ([7], [0, 0], [1]):
        with pytest.raises(ProtocolError, match=f"local rank {ranks[-1]} that cannot be"):
            asyncio.run(scenario([door.Arrival(rank, EPOCH, 5, (1, 1)) for rank in ranks]))
        (tmp_path / "x.sock").unlink()


def test_a_full_line_at_the_door_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "BACKLOG", 1)
    monkeypatch.setattr(door, "TIMEOUT_S", 10_000.0)
    met = asyncio.run(_meet(tmp_path / "x.sock", silent=2))
    assert len(met) == SIZE
    _close(met)


def test_one_that_cannot_read_the_others_speaks_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, True, False, True, True, True])
    monkeypatch.setattr(_core, "can_read", lambda pid, address, value: next(answers))
    met = asyncio.run(_meet(tmp_path / "x.sock"))
    assert [each.readable for each in met] == [False] * SIZE
    _close(met)


def test_the_sockets_of_killed_leaders_are_swept(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    alive = meeting.Meeting(tmp_path / "alive.sock")
    again = meeting.Meeting(tmp_path / "again.sock")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.sock", "alive.sock"]
    alive.close()
    again.close()
    again.close()
    assert not list(tmp_path.iterdir())


def test_nobody_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    arena = _core.Arena(1 << 20)
    with pytest.raises(JoinError, match="BYTEPS_SOCKET_PATH"):
        asyncio.run(meeting.attend(tmp_path / "x.sock", 1, 2, EPOCH, arena))


def test_a_path_that_is_too_long_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    with pytest.raises(ConfigError, match="BYTEPS_SOCKET_PATH"):
        meeting.Meeting(deep / "x.sock")


def test_a_folder_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert meeting.folder("").stat().st_mode & 0o777 == 0o700
    (tmp_path / "byteps").chmod(0o755)
    with pytest.raises(ConfigError, match="BYTEPS_SOCKET_PATH"):
        meeting.folder("")
    assert meeting.folder(str(tmp_path / "mine")).is_dir()


def test_process_memory_can_be_probed() -> None:
    address, value = _core.memory_nonce()
    assert _core.can_read(os.getpid(), address, value)
    assert not _core.can_read(os.getpid(), address, value ^ 1)
    assert not _core.can_read(os.getpid(), 8, value)
    assert not _core.can_read(0x7FFF_FFF0, address, value)
