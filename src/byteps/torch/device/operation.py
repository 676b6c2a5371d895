"""One push-pull of a tensor on a device, from its call to its result."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from byteps.worker import tensors

__all__ = ["Operation"]


@dataclass(eq=False)
class Operation:
    """``work`` holds the contribution, and afterwards the result. For a Handle it is a NativeHandle."""

    name: str
    key: str  # the same on all ranks of the machine, and never used again
    work: Tensor  # flat and contiguous, on the device
    average: bool
    priority: int
    rail: tensors.Tensor | None  # what this rank pushes to the servers; None when it pushes nothing
    mark: Any = None  # after which ``work`` holds the contribution
    whole: Tensor | None = None  # ``work``, or a padded copy of it
    mine: Tensor | None = None  # this rank's chunk of it
    host: Tensor | None = None  # this rank's part of it in host memory
    step: str = ""  # that it waits for
    error: Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def done(self) -> bool:
        return self.ended.is_set()

    def wait(self) -> None:
        # Every step has a deadline of its own, and the pipeline ends what it can no longer do.
        self.ended.wait()
        if self.error is not None:
            raise self.error

    def end(self, error: Exception | None = None) -> None:
        """The first end counts."""
        if not self.ended.is_set():
            self.error = self.error or error
            self.ended.set()
