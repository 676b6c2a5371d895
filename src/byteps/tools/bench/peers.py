"""What is compared, inside a worker: this project, Gloo and the bounds behind the same two verbs.

All of them sum float32 in place over all workers. A benchmark holds several peers ready at once and uses
one at a time; an idle one waits in the kernel and costs nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from byteps.tools.bench.memory_bound import SharedBuffers

__all__ = ["Arena", "Byteps", "Gloo", "MemoryBound", "Peer", "SocketBound"]

_GLOO_TIMEOUT = timedelta(seconds=60)


class Peer(ABC):
    """One way to sum tensors over all workers."""

    memory = "plain"  # peers of one kind of memory share tensors, so that none has luckier pages

    def empty(self, shape: Sequence[int]) -> Tensor:
        """Memory of this kind for a tensor of float32."""
        return torch.empty(tuple(shape))

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
        name = f"bench.{self.memory}.{tensor.numel()}"
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


class Arena(Byteps):
    """The same with tensors that lie in shared memory from the start."""

    memory = "arena"

    def empty(self, shape: Sequence[int]) -> Tensor:
        memory: Tensor = self._bps.empty(*shape)
        return memory


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


class SocketBound(Peer):
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


class MemoryBound(Peer):
    """Sums in place in memory that all workers map: native/bench/plain_memory.h."""

    memory = "shared"

    def __init__(self, fd: int, rank: int, workers: int, capacity_bytes: int) -> None:
        self._shared = SharedBuffers(fd, workers, capacity_bytes)
        self._rank = rank

    def empty(self, shape: Sequence[int]) -> Tensor:
        # Every size begins at the same place: one tensor at a time is measured.
        return torch.from_numpy(self._shared.array(self._rank, math.prod(shape))).view(tuple(shape))

    def rounds(self, tensor: Tensor, count: int, how: Mapping[str, Any]) -> None:
        self._shared.sum(self._rank, tensor.numel() * 4, count)
