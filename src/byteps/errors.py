"""Every exception this package raises, and the one place that maps lower errors to them.

    BytePSError (RuntimeError)
    ├── NotInitializedError          an operation before init() or after shutdown()
    ├── ConfigError (ValueError)     an environment variable or argument that does not parse or does not fit
    ├── JoinError                    start-up failed: nobody there, refused, or somebody missing
    │   ├── HandshakeError           the peer is not one of ours: version, job id or secret differ
    │   └── JoinTimeoutError         not everybody came in time; names who is missing
    ├── DeclarationError             ranks disagree on a tensor; names it, the ranks and both declarations
    ├── UnsupportedTensorError (TypeError)   a dtype, device or layout that cannot be sent
    ├── PeerLostError                a member died, went silent or left; has .role, .rank, .host and .reason
    ├── OutOfMemoryError (MemoryError)   a process of the job has no memory for a tensor; names both
    ├── OperationTimeoutError (TimeoutError) one operation waited longer than BYTEPS_OP_TIMEOUT_S
    └── ProtocolError                a peer sent something that makes no sense

A message says: operation, peer, expected, actual, next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "BytePSError",
    "ConfigError",
    "DeclarationError",
    "HandshakeError",
    "JoinError",
    "JoinTimeoutError",
    "NotInitializedError",
    "OperationTimeoutError",
    "OutOfMemoryError",
    "PeerLostError",
    "ProtocolError",
    "UnsupportedTensorError",
]


class BytePSError(RuntimeError):
    """Base of everything this package raises."""

    if not TYPE_CHECKING:
        # TensorFlow makes an exception anew, with the user's line in its text, if it is made as Exception is.
        __init__ = Exception.__init__


class NotInitializedError(BytePSError):
    """An operation was called before ``init()`` or after ``shutdown()``."""


class ConfigError(BytePSError, ValueError):
    """A setting does not parse, or settings contradict each other."""


class JoinError(BytePSError):
    """This process could not become a member of the job."""


class HandshakeError(JoinError):
    """The other end is not a member of this job: version, job id or secret differ."""


class JoinTimeoutError(JoinError):
    """Not every member came within BYTEPS_CONNECT_TIMEOUT_S."""


class DeclarationError(BytePSError):
    """Ranks declared one tensor name with different dtype, shape or codec."""


class UnsupportedTensorError(BytePSError, TypeError):
    """A dtype, device or memory layout that cannot be sent."""


class PeerLostError(BytePSError):
    """A member of the job died, went silent or left while it was still needed.

    After it, this process is no longer part of the job: every later operation raises it again.
    """

    def __init__(
        self, message: str, role: str = "", rank: int = -1, host: str = "", *, pid: int = 0, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.role = role
        self.rank = rank
        self.host = host
        self.pid = pid  # 0: unknown
        self.reason = reason  # why it is gone; empty: the message says all that is known


class OutOfMemoryError(BytePSError, MemoryError):
    """A server or this process has no memory for what an operation needs; the message has both numbers.

    After it, operations on that tensor may fail again; others go on.
    """


class OperationTimeoutError(BytePSError, TimeoutError):
    """One operation waited longer than BYTEPS_OP_TIMEOUT_S."""


class ProtocolError(BytePSError):
    """A peer sent bytes that are not our protocol, or a frame that may not come now."""
