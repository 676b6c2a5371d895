"""What an operation of a process group returns: a ``Work`` of torch.distributed over handles of ours."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch.futures import Future

from byteps.torch import completion
from byteps.worker.session import Session

__all__ = ["HandleWork"]

_Work: Any = c10d.Work


class Waitable(Protocol):
    """An operation: a handle of ours, or what looks like one."""

    def done(self) -> bool: ...
    def wait(self) -> object: ...


class HandleWork(_Work):  # type: ignore[misc]
    """Operations in flight. ``wait()`` waits for the core directly; only ``get_future()`` needs a thread."""

    def __init__(self, session: Session, handles: Sequence[Waitable], tensors: list[Tensor]) -> None:
        super().__init__()
        self._session = session
        self._handles = handles
        self._tensors = tensors
        self._lock = threading.Lock()  # a user's thread and the one of the future may both wait
        self._future: Future[list[Tensor]] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; raises what went wrong. Bounded by BYTEPS_OP_TIMEOUT_S, not by ``timeout``."""
        with self._lock:
            for handle in self._handles:
                handle.wait()
        return True

    def synchronize(self) -> None:
        """The same: there are no streams on a CPU."""
        self.wait()

    def is_completed(self) -> bool:
        """True when ``wait()`` would not block; the result is in place then."""
        if not all(handle.done() for handle in self._handles):
            return False
        self.exception()  # a tensor with gaps is filled by the wait
        return True

    def is_success(self) -> bool:
        """True when it is done and nothing went wrong."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """What went wrong; None while it is in flight."""
        if not all(handle.done() for handle in self._handles):
            return None
        try:
            self.wait()
        except Exception as error:
            return error
        return None

    def result(self) -> list[Tensor]:
        """The tensors that the operation was called with."""
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        """Nobody's: all ranks take part."""
        return -1

    def get_future(self) -> Future[list[Tensor]]:
        """A future with the tensors; the same one each time."""
        if self._future is None:
            self._future = completion.future(self._session, self.result)
        return self._future
