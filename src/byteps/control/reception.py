"""Whoever connects gets a task of its own; when too many are there, the one that came first has to go.

Those who stay long are strangers, or hang: nobody waits for them, and what they can hold is bounded.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, NoReturn, TypeVar

__all__ = ["MAX_PENDING", "Reception"]

MAX_PENDING = 256  # who are being received; one more sends the oldest away

Who = TypeVar("Who")


class Reception(Generic[Who]):
    """Accepts what comes to a listening socket. Lives in one asyncio loop.

    ``who(sock, address)`` is how it is told who somebody was. ``receive(sock, address)`` owns the socket.
    ``sent_away(who, why)`` is told of everybody who had to go; its task is cancelled. ``not_accepted(error)``
    decides what an error of accept() means: it raises, or returns when it is worth trying again.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        who: Callable[[socket.socket, Any], Who],
        receive: Callable[[socket.socket, Any], Coroutine[Any, Any, None]],
        sent_away: Callable[[Who, str], None],
        not_accepted: Callable[[OSError], Awaitable[None]],
    ) -> None:
        self._listener = listener
        self._who = who
        self._receive = receive
        self._sent_away = sent_away
        self._not_accepted = not_accepted
        self._pending: OrderedDict[asyncio.Task[None], Who] = OrderedDict()

    async def run(self) -> NoReturn:
        """Until cancelled, or until ``not_accepted`` raises."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as error:
                await self._not_accepted(error)
                continue
            if len(self._pending) >= MAX_PENDING:
                self.send_oldest_away(f"{MAX_PENDING} others have come after it")
            task = asyncio.ensure_future(self._receive(sock, address))
            self._pending[task] = self._who(sock, address)
            task.add_done_callback(lambda done: self._pending.pop(done, None))

    def send_oldest_away(self, why: str) -> bool:
        """False: there is nobody."""
        if not self._pending:
            return False
        task, who = self._pending.popitem(last=False)
        task.cancel()
        self._sent_away(who, why)
        return True

    def close(self) -> None:
        """Everybody has to go, and nobody is told of it. The listener stays its owner's."""
        for task in self._pending:
            task.cancel()
