"""The handle of an operation in flight: what ``push_pull_async`` returns and ``synchronize`` waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from byteps.errors import BytePSError
from byteps.worker.failures import again

if TYPE_CHECKING:
    from byteps.worker.interface import NativeHandle
    from byteps.worker.session import Session

__all__ = ["Handle"]

T = TypeVar("T")


class Handle(Generic[T]):
    """One operation. Pass it to ``poll()`` and ``synchronize()``; synchronizing twice gives the same result.

    The core works on raw addresses, so somebody must own the memory until the operation is done. That is the
    handle; when it is dropped earlier, its session adopts the memory and lets go of it once the core is done.
    """

    __slots__ = ("__weakref__", "_error", "_finish", "_keep", "_native", "_result", "_session")

    def __init__(
        self,
        session: Session,
        native: NativeHandle | None,
        result: T,
        keep: object,
        finish: Callable[[], object] | None = None,
    ) -> None:
        self._session = session
        self._native = native  # None once the outcome is known
        self._result = result
        self._keep = keep
        self._finish = finish  # left to do when the bytes have landed: copy them to strided memory
        self._error: BytePSError | None = None

    def done(self) -> bool:
        """True when ``wait()`` would not block."""
        return self._native is None or self._native.done()

    def wait(self) -> T:
        """Block until the operation is done; return its result or raise what went wrong, each time again."""
        native = self._native
        if native is not None:
            try:
                native.wait()
            except Exception as error:
                if not native.done():  # it failed, and yet another rank may be writing to its memory
                    self._session.adopt(native, self._keep)
                self._settle()
                failure = self._session.failure(error)
                if isinstance(failure, BytePSError):
                    self._error = failure
                raise failure from None
            finish = self._finish
            self._settle()
            if finish is not None:
                finish()
        if self._error is not None:
            raise again(self._error)
        return self._result

    def _settle(self) -> None:
        self._native = self._keep = self._finish = None

    def __del__(self) -> None:
        native = self._native
        if native is not None and not native.done():
            self._session.adopt(native, self._keep)

    def __repr__(self) -> str:
        state = "failed" if self._error else "done" if self.done() else "in flight"
        return f"<byteps.Handle {state}>"


def ensure(handle: object) -> Handle[Any]:
    """``handle``, or a TypeError that says what it should have been."""
    if not isinstance(handle, Handle):
        raise TypeError(f"expected the handle that push_pull_async() returned, not {type(handle).__name__}")
    return handle
