"""A data connection has broken and both ends live: connect again, and hand the new one to the core.

The core sends again what has no answer; the server knows what it has had. Whether the other end is alive is
not judged here. The scheduler sees the end of a process at once and says so, and its word ends every attempt.
Only who cannot connect within BYTEPS_RECONNECT_S is reported, and then the scheduler judges.

Lives in the control thread.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any

from byteps.config import Config
from byteps.control.connection import why
from byteps.control.messages import View
from byteps.control.scheduler_channel import FIRST_RETRY_S, LAST_RETRY_S
from byteps.errors import BytePSError, HandshakeError
from byteps.observe.logging import logger
from byteps.worker.data_connections import DataConnection, open_one

__all__ = ["Reconnector", "attempts"]

QUIET_S = 1.0  # what is mended sooner, or ends with the word of the scheduler, gets no line of its own
FIRST_ATTEMPT_S = 1.0  # TCP itself asks again after 1, 3 and 7 s: a link would be back for long before that

Hand = Callable[[DataConnection], None]
OnFailure = Callable[[int, str], None]  # rank of the server, and why it cannot be reached


def attempts(limit_s: float) -> list[tuple[float, float]]:
    """When to begin each attempt, and how long to give it at most, in seconds. Pure.

    Short ones first, so that a link that is back is used at once; each longer than the one before, so that a
    busy server has time to answer one of them.

    >>> attempts(4.0)
    [(0.0, 1.0), (1.05, 1.5), (2.65, 1.35)]
    """
    planned: list[tuple[float, float]] = []
    begin_s, length_s, delay_s = 0.0, FIRST_ATTEMPT_S, FIRST_RETRY_S
    while begin_s < limit_s:
        length_s = min(length_s, limit_s - begin_s)
        planned.append((round(begin_s, 3), round(length_s, 3)))
        begin_s += length_s + delay_s
        length_s *= 1.5
        delay_s = min(2 * delay_s, LAST_RETRY_S)
    return planned


class Reconnector:
    """Knows every data connection of a client by its tag."""

    def __init__(self, config: Config, view: View, hand: Hand, on_failure: OnFailure) -> None:
        self._config = config
        self._view = view
        self._hand = hand
        self._on_failure = on_failure
        self._tags = itertools.count(1)
        self._places: dict[int, tuple[int, int]] = {}  # (server, shard) of each connection that has not ended
        self._under_way: set[asyncio.Task[None]] = set()

    def tagged(self, connection: DataConnection) -> DataConnection:
        """As it is given to the core."""
        tag = next(self._tags)
        self._places[tag] = connection.server, connection.shard
        return connection._replace(tag=tag)

    def ended(self, tag: int, reason: str, unless_failed: Callable[[Coroutine[Any, Any, None]], Any]) -> bool:
        """A connection has ended by itself. False: it is none of ours, and so somebody else's news."""
        place = self._places.pop(tag, None)
        if place is None or not self._config.recovery:
            return False
        task = asyncio.ensure_future(unless_failed(self._again(*place, reason)))
        self._under_way.add(task)
        task.add_done_callback(self._over)
        return True

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, BytePSError):  # else the job is over
            logger.error("connecting again failed: %s: %s", type(error).__name__, error)

    async def _again(self, server: int, shard: int, reason: str) -> None:
        began = time.monotonic()
        made, problem = await self._open(server, shard, reason)
        if made is not None:
            try:
                self._hand(self.tagged(made))  # the descriptor is the core's now, whatever it thinks of it
            except (ValueError, IndexError, RuntimeError) as error:
                problem = f"its successor cannot be used: {error}"
        if problem:
            self._on_failure(server, f"the connection broke ({reason}), and {problem}")
            return
        text = "the connection to %s, shard %d, broke (%s) and was made again after %.2f s"
        logger.warning(text, self._view.servers()[server], shard, reason, time.monotonic() - began)

    async def _open(self, server: int, shard: int, reason: str) -> tuple[DataConnection | None, str]:
        """The successor, or why there is none."""
        whom, limit_s = self._view.servers()[server], self._config.reconnect_s
        began, told, last = time.monotonic(), False, reason
        for begin_s, length_s in attempts(limit_s):
            await asyncio.sleep(max(0.0, began + begin_s - time.monotonic()))
            if not told and time.monotonic() - began >= QUIET_S:
                told = True
                text = "the connection to %s broke (%s); connecting again for up to %g s (BYTEPS_RECONNECT_S)"
                logger.warning(text, whom, reason, limit_s)
            try:
                return await asyncio.wait_for(open_one(self._config, self._view, whom, shard), length_s), ""
            except asyncio.TimeoutError:
                last = "no answer"
            except HandshakeError as error:
                return None, f"then: {error}"
            except OSError as error:
                last = why(error)
        return None, f"could not be made again within {limit_s:g} s (BYTEPS_RECONNECT_S): {last}"
