"""Open a worker's data connections: one to every shard of every server, side by side, all or none."""

from __future__ import annotations

import asyncio
import os
import time
from typing import NamedTuple

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
    nearby: bool  # on this machine
    peer_pid: int  # the server's process if each end can read the other's memory, else 0


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


async def _open(config: Config, view: View, server: Member, shard: int, deadline: float) -> DataConnection:
    credentials = credentials_of(config)
    delay = FIRST_RETRY_S
    where = f"{server} at {joined(server.address, server.port)}"
    same_machine = key(server) == key(view.workers()[view.rank])
    memory = own_memory() if config.enable_ipc and same_machine else NO_MEMORY
    while True:
        handshake = ClientHandshake(
            credentials.job_id,
            credentials.secret,
            "data",
            "worker",
            rank=view.rank,
            shard=shard,
            epoch=view.epoch,
            memory=memory,
        )
        try:
            sock = await open_socket(server.address, server.port, handshake)
            make_patient(sock, config)
            checksum, nearby = wants_checksum(config.checksum, sock), same_host(sock)
            peer_pid = handshake.memory.pid if readable(handshake.memory) else 0
            return DataConnection(server.rank, shard, sock.detach(), checksum, nearby, peer_pid)
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
