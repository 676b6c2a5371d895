"""Which data connections a server takes, without a job around it: also of peers that have gone meanwhile."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator

import pytest

from byteps import _core
from byteps.config import load
from byteps.control.hello import Hello
from byteps.control.messages import Member, View
from byteps.server.service import Server

WORKERS = [Member("worker", rank, "h", "10.0.0.1", 0, 0, rank, 0, 1, 5) for rank in range(2)]


def hello(rank: int = 0, shard: int = 0, **changes: str) -> Hello:
    said = {"channel": "data", "role": "worker", **changes}
    names = said["channel"], said["role"]
    return Hello(_core.PROTOCOL_VERSION, "0", "job", *names, rank, shard, 0, False, b"")


class Taken:
    """In place of the aggregator."""

    def __init__(self) -> None:
        self.connections: list[tuple[int, int]] = []

    def attach(
        self, shard: int, rank: int, fd: int, checksum: bool, peer_pid: int, keys: None, tag: int
    ) -> None:
        self.connections.append((shard, rank))
        socket.socket(fileno=fd).close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server(load({"DMLC_PS_ROOT_URI": "127.0.0.1", "BYTEPS_SERVER_ENGINE_THREAD": "2"}))
    found._shards = 2
    yield found
    for sock, _ in found._early.values():
        sock.close()


def at_epoch(server: Server, epoch: int) -> Taken:
    server._view = View(epoch, 0, 2, WORKERS)
    taken = server._aggregator = Taken()  # type: ignore[assignment]
    return taken


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname(), 10)
        ours, _ = listener.accept()
    return ours, theirs


@pytest.mark.parametrize(
    ("said", "epoch", "words"),
    [
        (hello(), 5, ""),
        (hello(1, 1), 6, ""),  # it heard of the next epoch before this server did
        (hello(), 4, "comes from epoch 4, the job is in epoch 5"),
        (hello(), 7, "comes from epoch 7"),
        (hello(), (1 << 32) - 1, "comes from epoch"),
        (hello(2), 5, "no worker 2"),
        (hello(-1), 5, "worker -1"),
        (hello(0, 2), 5, "this server has 2"),
        (hello(0, -1), 5, "shard -1"),
        (hello(channel="beat"), 5, "does not belong"),
        (hello(role="server"), 5, "does not belong"),
    ],
)
def test_who_is_admitted(server: Server, said: Hello, epoch: int, words: str) -> None:
    at_epoch(server, 5)
    refusal = server._admit(said, epoch)
    assert words in refusal and bool(refusal) == bool(words)


def test_a_connection_waits_for_its_epoch(server: Server) -> None:
    ours, theirs = pair()
    assert server._admit(hello(1, 1), 1) == ""
    server._welcome(ours, hello(1, 1), 1, None)
    assert "its place is taken" in server._admit(hello(1, 1), 1)
    taken = at_epoch(server, 1)
    server._attach_early()
    assert taken.connections == [(1, 1)] and not server._early
    theirs.close()


def test_a_worker_that_has_gone_while_it_waited_is_no_error(server: Server) -> None:
    """Else whoever resets its connection in the right moment would end the server."""

    async def scenario() -> None:
        taken = at_epoch(server, 1)
        ours, theirs = pair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        ours.setblocking(True)
        ours.settimeout(10)
        with pytest.raises(ConnectionResetError):
            ours.recv(1)  # the reset has arrived
        server._welcome(ours, hello(), 1, None)
        assert taken.connections == [] and not server._early and ours.fileno() < 0

    asyncio.run(scenario())
