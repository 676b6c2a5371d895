"""What a session needs from the two planes; the job of one implements both without a socket.

``Client`` is the data plane (``byteps._core.Client``, or ``local.LocalClient``), ``Control`` is the control
plane (``control.ControlClient``, or ``local.LocalControl``). Nothing above a session knows which of them it
talks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from byteps.errors import BytePSError, PeerLostError

if TYPE_CHECKING:
    from byteps._core import FailureKind

__all__ = ["Client", "Control", "Follower", "NativeHandle", "Place", "Placement", "Spec"]


class Spec(NamedTuple):
    """What a rank says about a tensor; ranks must agree on all of it."""

    name: str
    dtype: int  # number of byteps.tensor.dtypes
    shape: tuple[int, ...]
    codec: str = ""  # canonical text of the compression; "" for none
    direct: bool = False  # this rank pushes it for its whole machine, without the machine's group
    generation: int | None = None  # that of the tensor it is a part of; None: one after the last of its name


class Placement(NamedTuple):
    """The scheduler's answer to a declaration."""

    tensor_id: int
    parts: list[tuple[int, int]]  # (server, shard) of every partition
    partition_bytes: int  # of all but the last one


class Place(NamedTuple):
    """Where this process stands in the job."""

    rank: int
    size: int
    local_rank: int
    local_size: int


class NativeHandle(Protocol):
    """One operation in flight."""

    def done(self) -> bool:
        """True when the operation has ended, well or not; the core touches its memory no more."""

    def wait(self) -> None:
        """Block until it has ended, without holding the GIL; raise ``_core.OpError`` when it failed."""


class Follower(Protocol):
    """A part of a plugin that has operations of its own, and must hear what ends them. Any thread."""

    def fail(self, error: BytePSError) -> None:
        """A member is lost."""

    def refuse(self, name: str, text: str) -> None:
        """Ranks disagree on the tensor ``name``, or one has no memory for it."""

    def close(self) -> None:
        """The membership ends."""


class Client(Protocol):
    """The data plane of one rank. Addresses are of ``nbytes`` that live until the handle is done."""

    def declare(
        self,
        tensor_id: int,
        name: str,
        dtype: int,
        nbytes: int,
        partition_bytes: int,
        placement: list[tuple[int, int]],
        direct: bool = False,
        codec: Any = None,
        momentum: bool = False,
    ) -> Any: ...

    def push_pull(
        self,
        tensor: Any,
        src: int,
        dst: int,
        priority: int,
        average: bool,
        lr: float = 0.0,
        mu: float = 0.0,
    ) -> NativeHandle: ...

    def broadcast(self, tensor: Any, address: int, root: int, priority: int) -> NativeHandle: ...

    def fail(self, kind: FailureKind, message: str, role: str, rank: int, host: str) -> None: ...

    def fail_tensor(self, tensor_id: int, message: str, lack: bool = False) -> None: ...
    def forget(self, tensor_id: int) -> None: ...

    def counters(self) -> dict[str, int]: ...

    def speed_bytes_per_s(self) -> float: ...

    def close(self) -> None: ...


class Control(Protocol):
    """The control plane of one rank. Every call is bounded and raises an error of ``byteps.errors``."""

    def declare(self, specs: Sequence[tuple[Spec, int]]) -> list[Placement]:
        """Declare (spec, generation) in one message; raise DeclarationError where ranks disagree."""

    def lack(self, tensor_id: int, reason: str) -> None:
        """This process has no memory for what it has declared: nobody may wait for its contributions."""

    def barrier(self, timeout_s: float) -> None: ...

    def leave(
        self, *, suspend: bool, failed: bool, reason: str, because: PeerLostError | None = None
    ) -> None:
        """Say goodbye; with ``suspend`` stay connected, so that the process can come back.

        ``because``: the loss that ends this process; the others are told of that one.
        """

    def inherited_fds(self) -> list[int]:
        """Descriptors that a forked child must let go of, or peers would not see this process die."""
