"""Where the heartbeat connections and the control connection of one process wait for each other."""

from __future__ import annotations

import asyncio

from byteps.control.handshake import TIMEOUT_S
from byteps.control.scheduler_channel import BEAT_LINES, Line


class _Party:
    """The heartbeat connections of one process that have come so far."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.complete = asyncio.Event()


MAX_WAITING = 4_096


class Lobby:
    """Connections by instance number. Lives in one asyncio loop.

    What nobody fetches in time is closed, and when too many wait, the one that has waited longest.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Party] = {}

    def arrive(self, instance: int, line: Line) -> None:
        """A heartbeat connection has come; one more than a process should have is closed."""
        party = self._party(instance)
        if party.complete.is_set():
            line.sock.close()
            return
        party.lines.append(line)
        if len(party.lines) == BEAT_LINES:
            party.complete.set()

    async def fetch(self, instance: int) -> list[Line]:
        """All heartbeat connections of a process, now or when they are there; asyncio.TimeoutError if not."""
        party = self._party(instance)
        await asyncio.wait_for(party.complete.wait(), TIMEOUT_S)
        self._waiting.pop(instance, None)
        return party.lines

    def _party(self, instance: int) -> _Party:
        party = self._waiting.get(instance)
        if party is None:
            if len(self._waiting) >= MAX_WAITING:
                self._expire(*next(iter(self._waiting.items())))
            party = self._waiting[instance] = _Party()
            asyncio.get_running_loop().call_later(TIMEOUT_S, self._expire, instance, party)
        return party

    def _expire(self, instance: int, party: _Party) -> None:
        if self._waiting.get(instance) is not party:
            return  # it was fetched
        del self._waiting[instance]
        for line in party.lines:
            line.sock.close()
