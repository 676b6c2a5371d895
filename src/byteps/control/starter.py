"""The line between a scheduler or server and the rank that started it: its far end, in the started process.

Only jobs on one machine have it (see ``byteps.worker.services``). It is a socket pair with two uses: the
started process says on it why it ends, so that ``init()`` of that rank can raise it; and the rank's end
closes when the rank dies or gives up, which nobody else would notice before the job has formed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from byteps.config import Config, load

__all__ = ["MAX_WORDS_BYTES", "settings", "tell", "watch"]

MAX_WORDS_BYTES = 4_096  # fits into the socket's buffer, so that telling never blocks


def settings() -> Config:
    """The settings of a scheduler or server, after it has left the cores of the rank that started it.

    It serves all ranks, and how many threads it starts depends on its cores.
    """
    config = load()
    if not config.unbound_cpus:
        return config
    try:
        os.sched_setaffinity(0, config.unbound_cpus)
    except OSError:  # somebody has taken these processors away since
        pass
    return load()


def tell(fd: int | None, words: str) -> None:
    """Say the last words; nobody may be there to hear them."""
    if fd is None:
        return
    try:
        os.write(fd, words.encode(errors="replace")[:MAX_WORDS_BYTES])
    except OSError:
        pass


def watch(fd: int | None, gone: Callable[[], object]) -> None:
    """Call ``gone`` in the running loop, once, when the rank's end is closed."""
    if fd is None:
        return
    loop = asyncio.get_running_loop()

    def ended() -> None:  # the rank never writes, so readable means the end
        loop.remove_reader(fd)
        gone()

    loop.add_reader(fd, ended)
