"""One order of collective steps for all ranks of a machine, whatever the order in which they ask for them.

Collectives must begin in the same order everywhere, but hooks fire in an order of their own on every rank,
and results come back from the network when they like. So a rank only says for which step it is ready. The
last one to say so knows that all are, and gives the step the next number. Every rank carries out the steps by
number.

    ready/STEP   how many ranks are ready for it; removed when all are
    steps        the last number given
    step/N       the step with number N; removed by the leader when it has been done

No rank decides for the others, nothing is asked twice, and a rank that is late delays only its own steps.
A call costs a message or two to the machine's store, tens of microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from byteps.errors import OperationTimeoutError

__all__ = ["Order"]


class Order:
    """``ready`` from any thread, ``next`` from one."""

    def __init__(self, connect: Callable[[], Any], ranks: int, timeout_s: float) -> None:
        self._telling = connect()
        self._asking = connect()  # of its own: it waits
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._number = 0

    def ready(self, step: str) -> None:
        """This rank can begin the step; said once for each."""
        if self._telling.add(f"ready/{step}", 1) == self._ranks:
            self._telling.delete_key(f"ready/{step}")
            number = self._telling.add("steps", 1)
            self._telling.set(f"step/{number}", step)

    def next(self, wanted: str) -> str:
        """Wait for the next step; ``wanted`` is one that this rank is ready for, to be named in an error."""
        try:
            step: str = self._asking.get(f"step/{self._number + 1}").decode()
        except RuntimeError as error:
            if "timeout" not in str(error).lower():
                raise
            count = self._telling.add(f"ready/{wanted}", 0)
            raise OperationTimeoutError(
                f"{wanted}: {count} of {self._ranks} ranks of this machine came to it within "
                f"{self._timeout_s:g} s (BYTEPS_OP_TIMEOUT_S); do all of them push the same tensors?"
            ) from None
        self._number += 1
        return step

    def forget(self) -> None:
        """Remove the current step; for the leader, when it has ended there and so has begun everywhere."""
        self._telling.delete_key(f"step/{self._number}")
