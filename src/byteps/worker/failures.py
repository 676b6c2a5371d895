"""The one place that turns errors of the native core into the exceptions of ``byteps.errors``."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, TypeVar

from byteps.errors import (
    BytePSError,
    DeclarationError,
    NotInitializedError,
    OperationTimeoutError,
    OutOfMemoryError,
    PeerLostError,
    ProtocolError,
)
from byteps.observe.text import clean

if TYPE_CHECKING:
    from byteps._core import FailureKind

E = TypeVar("E", bound=BytePSError)

__all__ = ["EXCEPTIONS", "again", "from_core", "translate"]

# By the name of a ``_core.FailureKind``, not by the kind itself: a job of one never loads the core.
EXCEPTIONS: dict[str, type[BytePSError]] = {
    "LOST": PeerLostError,
    "UNREACHABLE": PeerLostError,
    "SILENT": PeerLostError,
    "TIMEOUT": OperationTimeoutError,
    "CONFLICT": DeclarationError,
    "MEMORY": OutOfMemoryError,
    "PROTOCOL": ProtocolError,
    "CLOSED": NotInitializedError,
}


def from_core(kind: FailureKind, message: str, role: str, rank: int, host: str) -> BytePSError:
    """The exception for the five arguments of a ``_core.OpError``; the message may quote a server."""
    exception = EXCEPTIONS[kind.name]
    message = clean(message)
    return PeerLostError(message, role, rank, host) if exception is PeerLostError else exception(message)


def translate(error: Exception) -> Exception:
    """``error`` itself, unless it is a ``_core.OpError``."""
    core = sys.modules.get("byteps._core")  # a job of one never loads it
    if core is not None and isinstance(error, core.OpError):
        return from_core(*error.args)
    return error


def again(error: E) -> E:
    """A fresh copy to raise: raising one object twice would grow its traceback each time."""
    return copy.copy(error)
