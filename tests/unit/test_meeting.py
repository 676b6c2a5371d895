"""The meeting of a machine's ranks: everybody gets everything, strangers get nothing, no trace is left."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from byteps import _core
from byteps.control import meeting
from byteps.errors import ConfigError, JoinError

SIZE = 3
EPOCH = 5


async def _meet(path: Path, stranger: bytes | None = None) -> list[meeting.Met]:
    arenas = [_core.Arena(1 << 20) for _ in range(SIZE)]
    held = meeting.Meeting(path)
    assert os.stat(path).st_mode & 0o077 == 0  # noqa: PTH116
    if stranger is not None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(path))
            if stranger:
                sock.send(stranger)
    ranks = [held.hold(SIZE, EPOCH, arenas[0])]
    ranks += [meeting.attend(path, rank, SIZE, EPOCH, arenas[rank]) for rank in range(1, SIZE)]
    return list(await asyncio.wait_for(asyncio.gather(*ranks), 20))


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
