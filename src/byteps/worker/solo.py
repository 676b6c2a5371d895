"""The job of one: both planes without a socket, so that a script runs unchanged without any launcher.

The sum over one rank is its own contribution, and so is the average. In asynchronous mode there is no
server to hold the tensor that contributions are added to, so the client holds it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from byteps.errors import PeerLostError
from byteps.tensor import dtypes
from byteps.tensor.tuning import USUAL_BYTES
from byteps.worker.interface import NativeHandle, Place, Placement, Spec

if TYPE_CHECKING:
    from byteps._core import FailureKind

__all__ = ["PLACE", "SoloClient", "SoloControl"]

PLACE = Place(rank=0, size=1, local_rank=0, local_size=1)


class _Done:
    """An operation that was over before it was returned."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return None


_DONE = _Done()


class SoloTensor:
    __slots__ = ("_momentum", "dtype", "nbytes", "previous_lr", "steps", "stored")

    errors: ClassVar[dict[int, tuple[int, int]]] = {}  # nothing is compressed

    def __init__(self, dtype: int, nbytes: int, momentum: bool) -> None:
        self.dtype = dtype
        self.nbytes = nbytes
        self.steps = 0  # these two are for codecs, and only kept
        self.previous_lr = 0.0
        self.stored: Any = None  # asynchronous mode only: an array of the current value
        self._momentum: Any = None
        if momentum:
            from byteps import _core

            self._momentum = _core.Momentum(dtype, nbytes // dtypes.ITEM_BYTES[dtype])

    @property
    def momentum(self) -> tuple[int, int]:
        """Address and bytes, as the core's tensors have them."""
        return (0, 0) if self._momentum is None else self._momentum.memory

    def move(self, src: int, dst: int, mu: float) -> None:
        """What one rank's operation does to its memory."""
        if self._momentum is not None:
            self._momentum.apply(src, dst, mu)
        elif src != dst:
            ctypes.memmove(dst, src, self.nbytes)


class SoloClient:
    """The data plane of a job of one."""

    def __init__(self, *, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._operations = 0

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
    ) -> SoloTensor:
        return SoloTensor(dtype, nbytes, momentum)

    def push_pull(
        self,
        tensor: SoloTensor,
        src: int,
        dst: int,
        priority: int,
        average: bool,
        lr: float = 0.0,
        mu: float = 0.0,
    ) -> NativeHandle:
        self._operations += 1
        tensor.move(src, dst, mu)
        if self._asynchronous:
            from byteps.worker import solo_async

            solo_async.push_pull(tensor, dst, dst)
        return _DONE

    def broadcast(self, tensor: SoloTensor, address: int, root: int, priority: int) -> NativeHandle:
        self._operations += 1
        if self._asynchronous:
            from byteps.worker import solo_async

            solo_async.broadcast(tensor, address)
        return _DONE

    def fail(self, kind: FailureKind, message: str, role: str, rank: int, host: str) -> None:
        """There is no peer to lose."""

    def forget(self, tensor_id: int) -> None:
        """Nothing is kept per tensor."""

    def fail_tensor(self, tensor_id: int, message: str, lack: bool = False) -> None:
        """There is nobody to disagree with."""

    def counters(self) -> dict[str, int]:
        """The same names as the core's; a job of one moves no bytes."""
        moved = (
            "pushed_bytes",
            "pulled_bytes",
            "pushed_wire_bytes",
            "pulled_wire_bytes",
            "wire_sent_bytes",
            "wire_received_bytes",
            "pieces_sent",
            "local_bytes",
        )
        return {**dict.fromkeys(moved, 0), "operations": self._operations}

    def speed_bytes_per_s(self) -> float:
        return 0.0

    def close(self) -> None:
        """Nothing is held."""


class SoloControl:
    """The control plane of a job of one."""

    def __init__(self) -> None:
        self._next_id = 0

    def declare(self, specs: Sequence[tuple[Spec, int]]) -> list[Placement]:
        first, self._next_id = self._next_id, self._next_id + len(specs)
        return [Placement(tensor_id, [], USUAL_BYTES) for tensor_id in range(first, self._next_id)]

    def lack(self, tensor_id: int, reason: str) -> None:
        """Nobody waits."""

    def barrier(self, timeout_s: float) -> None:
        """Everybody is here."""

    def leave(
        self, *, suspend: bool, failed: bool, reason: str, because: PeerLostError | None = None
    ) -> None:
        """Nobody to tell."""

    def inherited_fds(self) -> list[int]:
        return []
