"""How to end an asyncio task for certain."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.05


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it is over. Its result or error is dropped.

    ``asyncio.wait_for`` before Python 3.12 swallows a cancellation that comes in the moment its inner task is
    done, and the outer task goes on as if nothing had happened. So one cancellation may not be enough.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_S)
    if not task.cancelled():
        task.exception()  # seen: asyncio need not complain
