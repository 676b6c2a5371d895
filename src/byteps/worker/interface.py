"""What a session needs from the two planes; the job of one implements both without a socket.

``Client`` is the data plane, whose calls are declared in ``_core.pyi`` and nowhere else; the type checker
holds a job of one to them wherever a client is used. ``Control`` is the control plane
(``control.ControlClient``, or ``solo.SoloControl``). Nothing above a session knows which of them it talks to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from byteps.errors import BytePSError, PeerLostError

if TYPE_CHECKING:
    from byteps import _core
    from byteps.worker.solo import SoloClient

__all__ = ["Client", "Control", "Follower", "NativeHandle", "Place", "Placement", "Spec"]

Client: TypeAlias = "_core.Client | SoloClient"


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
