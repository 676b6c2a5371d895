"""Which step a training is in: told by whoever ends one, and known to everybody who observes.

Optimizers, DDP, hooks, tapes and trainers mark the end of a step by themselves. Several may: a GAN has two
optimizers, and DDP is used with an optimizer of ours. The first to mark one is the one that counts, for as
long as it goes on: a graph that TensorFlow has traced anew takes over from the old one, which may still
exist. When the script says it itself with ``bps.step()``, from then on only that counts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

__all__ = ["Steps"]

PATIENCE = 8  # marks of others in a row, after which the one that counted has ended


class Steps:
    """Counts the steps of one membership. Any thread may mark; ``record`` is told the number of each."""

    def __init__(self, record: Callable[[int], None]) -> None:
        self.number = 0  # of the last step that has ended
        self._record = record
        self._owner: weakref.ref[object] | str | None = None
        self._others = 0  # marks since the owner's last one
        self._by_script = False

    def mark(self, by: object) -> None:
        """``by`` has ended a step: an object, or a text that stays the same where objects do not."""
        if self._by_script:
            return
        owner = self._owner() if isinstance(self._owner, weakref.ref) else self._owner
        if owner != by:
            self._others += 1
            if owner is not None and self._others <= PATIENCE:
                return
            self._owner = by if isinstance(by, str) else weakref.ref(by)
        self._others = 0
        self._end()

    def mark_by_script(self) -> None:
        """The script says that a step has ended."""
        self._by_script = True
        self._end()

    def _end(self) -> None:
        self.number += 1
        self._record(self.number)
