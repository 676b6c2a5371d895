"""The one place that turns errors of the native core into the exceptions of ``byteps.errors``."""

from __future__ import annotations

import copy
import sys
from typing import TypeVar

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

E = TypeVar("E", bound=BytePSError)

__all__ = ["again", "from_core", "translate"]

_KINDS: dict[str, type[BytePSError]] = {
    "timeout": OperationTimeoutError,
    "conflict": DeclarationError,
    "memory": OutOfMemoryError,
    "protocol": ProtocolError,
    "closed": NotInitializedError,
}


def from_core(kind: str, message: str, role: str = "", rank: int = -1, host: str = "") -> BytePSError:
    """The exception for the five arguments of a ``_core.OpError``; the message may quote a server."""
    message = clean(message)
    if kind == "lost":
        return PeerLostError(message, role, rank, host)
    return _KINDS.get(kind, BytePSError)(message)


def translate(error: Exception) -> Exception:
    """``error`` itself, unless it is a ``_core.OpError``."""
    core = sys.modules.get("byteps._core")  # a job of one never loads it
    if core is not None and isinstance(error, core.OpError):
        return from_core(*error.args)
    return error


def again(error: E) -> E:
    """A fresh copy to raise: raising one object twice would grow its traceback each time."""
    return copy.copy(error)
