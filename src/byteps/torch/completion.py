"""Futures of PyTorch that are done when operations of ours are: one thread waits for them, in their order.

Callers are the communication hook of DDP and ``Work.get_future()``. The core has no callbacks, because it
never takes the GIL; so somebody has to wait, and it does so without the GIL and without polling. In order is
good enough: whoever has many futures wants all of them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from torch.futures import Future

from byteps.errors import BytePSError
from byteps.worker.session import Session

__all__ = ["future"]

T = TypeVar("T")


def future(session: Session, wait: Callable[[], T]) -> Future[T]:
    """A future with what ``wait`` returns or raises; ``wait`` runs in the waiting thread and must be bounded.

    Errors are those of the future in C++, too, as a RuntimeError with the text of ours.
    """
    return session.follower(Waiter, Waiter).add(wait)


class Waiter:
    """The waiting thread of one membership."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Future[None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="byteps-futures", daemon=True).start()

    def add(self, wait: Callable[[], T]) -> Future[T]:
        # An exception that a Python program sets on a Future is invisible to C++. One that a callback raises
        # is not, so the waiting is a callback of a future that means "it is your turn".
        turn: Future[None] = Future()
        result = turn.then(lambda _: wait())
        self._queue.put(turn)
        return result

    def _run(self) -> None:
        while (turn := self._queue.get()) is not None:
            turn.set_result(None)
            del turn  # with everything that its callback holds

    # As a Follower: operations in flight end when the membership does, and so does every wait for them.

    def fail(self, error: BytePSError) -> None:
        """The operations fail by themselves."""

    def refuse(self, name: str, text: str) -> None:
        """The operations on that tensor fail by themselves."""

    def close(self) -> None:
        """What is queued still gets its turn."""
        self._queue.put(None)
