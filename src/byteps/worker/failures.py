"""The one place that turns errors of the native core into the exceptions of ``byteps.errors``."""

from __future__ import annotations

import copy
import sys

from byteps.errors import (
    BytePSError,
    DeclarationError,
    NotInitializedError,
    OperationTimeoutError,
    PeerLostError,
    ProtocolError,
)

__all__ = ["again", "from_core", "loss", "translate"]

_KINDS: dict[str, type[BytePSError]] = {
    "timeout": OperationTimeoutError,
    "conflict": DeclarationError,
    "protocol": ProtocolError,
    "closed": NotInitializedError,
}


def from_core(kind: str, message: str, role: str = "", rank: int = -1, host: str = "") -> BytePSError:
    """The exception for the five arguments of a ``_core.OpError``."""
    if kind == "lost":
        return PeerLostError(message, role, rank, host)
    return _KINDS.get(kind, BytePSError)(message)


def loss(role: str, rank: int, host: str, reason: str) -> PeerLostError:
    """The exception for a member that is gone.

    >>> str(loss("server", 1, "b", "its connection closed"))
    'server 1 (host b) was lost: its connection closed; this job cannot go on, start it again'
    """
    name = role if role == "scheduler" else f"{role} {rank}"
    text = f"{name} (host {host}) was lost: {reason}; this job cannot go on, start it again"
    return PeerLostError(text, role, rank, host)


def translate(error: Exception) -> Exception:
    """``error`` itself, unless it is a ``_core.OpError``."""
    core = sys.modules.get("byteps._core")  # a job of one never loads it
    if core is not None and isinstance(error, core.OpError):
        return from_core(*error.args)
    return error


def again(error: BytePSError) -> BytePSError:
    """A fresh copy to raise: raising one object twice would grow its traceback each time."""
    return copy.copy(error)
