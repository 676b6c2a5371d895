"""Where the heartbeat and the control connection of one process wait for each other."""

from __future__ import annotations

import asyncio
import socket

from byteps.control.handshake import TIMEOUT_S


class Lobby:
    """Connections by instance number. What nobody fetches in time is closed. Lives in one asyncio loop."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[socket.socket]] = {}

    def arrive(self, instance: int, sock: socket.socket) -> None:
        """A heartbeat connection has come; a second one of the same process is closed."""
        future = self._future(instance)
        if future.done():
            sock.close()
        else:
            future.set_result(sock)

    async def fetch(self, instance: int) -> socket.socket:
        """The heartbeat connection of a process, now or when it comes; asyncio.TimeoutError if not."""
        sock = await asyncio.wait_for(asyncio.shield(self._future(instance)), TIMEOUT_S)
        self._waiting.pop(instance, None)
        return sock

    def _future(self, instance: int) -> asyncio.Future[socket.socket]:
        future = self._waiting.get(instance)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._waiting[instance] = loop.create_future()
            loop.call_later(TIMEOUT_S, self._expire, instance, future)
        return future

    def _expire(self, instance: int, future: asyncio.Future[socket.socket]) -> None:
        if self._waiting.get(instance) is not future:
            return  # it was fetched
        del self._waiting[instance]
        if future.done() and not future.cancelled():
            future.result().close()
