"""Open a worker's data connections: one to every shard of every server, side by side, all or none."""

from __future__ import annotations

import asyncio
import os
import time
from typing import NamedTuple

from byteps import _core
from byteps.config import Config
from byteps.config.endpoint import joined
from byteps.control.address import same_host, wants_checksum
from byteps.control.connection import credentials_of, open_socket, why
from byteps.control.handshake import ClientHandshake
from byteps.control.hello import NO_MEMORY
from byteps.control.machine import key
from byteps.control.memory import own_memory, readable
from byteps.control.messages import Member, View
from byteps.control.patience import make_patient
from byteps.control.scheduler_channel import FIRST_RETRY_S, LAST_RETRY_S
from byteps.control.shortage import is_shortage
from byteps.errors import HandshakeError, JoinError

MAX_AT_ONCE = 64  # a server has room for 256 handshakes, of all workers


class DataConnection(NamedTuple):
    """A connected socket whose handshake is done; whoever gets it owns the descriptor."""

    server: int
    shard: int
    fd: int
    checksum: bool
    same_machine: bool
    peer_pid: int  # the server's process if each end can read the other's memory, else 0
    keys: _core.SessionKeys | None  # None: it is not encrypted
    tag: int = 0  # what the core calls it when it ends


async def open_all(config: Config, view: View, deadline: float) -> list[DataConnection]:
    """Every connection of this worker by (server, shard); JoinError names the server that fails."""
    room = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(server: Member, shard: int) -> DataConnection:
        async with room:
            return await _open(config, view, server, shard, deadline)

    tasks = [
        asyncio.ensure_future(one(server, shard))
        for server in view.servers()
        for shard in range(server.shards)
    ]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, DataConnection):
                os.close(result.fd)
        raise


async def open_one(config: Config, view: View, server: Member, shard: int) -> DataConnection:
    """One attempt; OSError may go away with time, HandshakeError will not."""
    credentials = credentials_of(config)
    same_machine = key(server) == key(view.workers()[view.rank])
    by_address = config.enable_ipc and same_machine and config.encrypt != "all"
    memory = own_memory() if by_address else NO_MEMORY
    handshake = ClientHandshake(
        credentials.job_id,
        credentials.secret,
        "data",
        "worker",
        rank=view.rank,
        shard=shard,
        epoch=view.epoch,
        memory=memory,
        sealing=credentials.sealing,
        expected=server.incarnation,
    )
    sock = await open_socket(server.address, server.port, handshake)
    try:
        make_patient(sock, config)
        keys, same_machine = handshake.keys, same_host(sock)
        checksum = wants_checksum(config.checksum, sock, sealed=keys is not None)
    except BaseException:  # it has gone already
        sock.close()
        raise
    peer_pid = handshake.memory.pid if keys is None and readable(handshake.memory) else 0
    return DataConnection(server.rank, shard, sock.detach(), checksum, same_machine, peer_pid, keys)


async def _open(config: Config, view: View, server: Member, shard: int, deadline: float) -> DataConnection:
    delay = FIRST_RETRY_S
    where = f"{server} at {joined(server.address, server.port)}"
    while True:
        try:
            return await open_one(config, view, server, shard)
        except HandshakeError as error:
            raise HandshakeError(f"worker {view.rank} cannot connect to {where}: {error}") from None
        except OSError as error:
            if is_shortage(error):
                raise
            if time.monotonic() + delay >= deadline:
                raise JoinError(
                    f"worker {view.rank} cannot connect to {where}: {why(error)}; look for a firewall "
                    "and check the address that server tells (DMLC_NODE_HOST, DMLC_INTERFACE, DMLC_PORT)"
                ) from None
        await asyncio.sleep(delay)
        delay = min(2 * delay, LAST_RETRY_S)
