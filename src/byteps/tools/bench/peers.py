"""What is compared, inside a worker: this project, Gloo and the bound behind the same two verbs.

All of them sum float32 in place over all workers. A benchmark holds several peers ready at once and uses
one at a time; an idle one waits in the kernel and costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch import distributed as dist

__all__ = ["Bound", "Byteps", "Gloo", "Peer"]

_GLOO_TIMEOUT = timedelta(seconds=60)


class Peer(ABC):
    """One way to sum tensors over all workers."""

    @abstractmethod
    def rounds(self, tensor: Tensor, count: int, how: Mapping[str, Any]) -> None:
        """Sum in place ``count`` times in a row; ``how`` is the request, with a peer's own settings."""

    def many(self, tensors: Mapping[str, Tensor]) -> None:
        """Start the sums of all tensors, then wait for all."""
        raise NotImplementedError(f"{type(self).__name__} sums one tensor at a time")

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        """What a user would do once, before the first sum."""
        return

    def leave(self) -> None:
        """Let go of connections and threads."""
        return


class Byteps(Peer):
    """This project, through the interface that PyTorch users call."""

    def __init__(self) -> None:
        import byteps.torch

        self._bps = byteps.torch
        self._bps.init()

    def rounds(self, tensor: Tensor, count: int, how: Mapping[str, Any]) -> None:
        name = f"bench.{tensor.numel()}"
        for _ in range(count):
            self._bps.push_pull_inplace(tensor, average=False, name=name)

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        self._bps.declare(tensors)

    def many(self, tensors: Mapping[str, Tensor]) -> None:
        start, wait = self._bps.push_pull_async_inplace, self._bps.synchronize
        handles = [start(tensor, average=False, name=name) for name, tensor in tensors.items()]
        for handle in handles:
            wait(handle)

    def leave(self) -> None:
        self._bps.shutdown()


class Gloo(Peer):
    """``torch.distributed`` with the Gloo backend among the same workers; there is no server."""

    def __init__(self, store: str, rank: int, workers: int) -> None:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=workers,
            timeout=_GLOO_TIMEOUT,
        )

    def rounds(self, tensor: Tensor, count: int, how: Mapping[str, Any]) -> None:
        for _ in range(count):
            dist.all_reduce(tensor)

    def many(self, tensors: Mapping[str, Tensor]) -> None:
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors.values()]
        for work in works:
            assert work is not None  # only a process outside of the group gets None
            work.wait()

    def leave(self) -> None:
        dist.destroy_process_group()


class Bound(Peer):
    """Plain blocking sockets to a summing process: native/bench/plain_sockets.h."""

    def __init__(self, fds: list[list[int]]) -> None:
        from byteps import _core

        self._run = _core.plain_worker
        self._fds = fds  # [server][stream]

    def rounds(self, tensor: Tensor, count: int, how: Mapping[str, Any]) -> None:
        streams = [fd for server in self._fds for fd in server[: how["streams"]]]
        self._run(
            streams,
            tensor.data_ptr(),
            nbytes=tensor.numel() * 4,
            chunk_bytes=how["chunk_bytes"],
            window=how["window"],
            rounds=count,
        )
