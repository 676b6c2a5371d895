"""The ranks of this machine as a process group of PyTorch's, apart from the groups of the user.

The group is made from its backend's class with a store of its own. ``init_process_group`` and ``new_group``
would claim or need the default group, which belongs to the user's program.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from byteps.errors import ConfigError

__all__ = ["LEADER", "Group", "connect_store", "serve_store"]

dist: Any = torch.distributed  # much of what is used here has no types
LOOPBACK = "127.0.0.1"
LEADER = 0  # local rank


def serve_store(timeout_s: float) -> Any:
    """The store of this machine, in its leader: on a free port that only this machine can reach."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        return dist.TCPStore(
            LOOPBACK,
            port,
            is_master=True,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )


def connect_store(port: int, timeout_s: float) -> Any:
    """One more connection with the store; a call that waits keeps its connection busy."""
    return dist.TCPStore(LOOPBACK, port, is_master=False, timeout=timedelta(seconds=timeout_s))


class Group:
    """Collectives among the ranks of this machine. Every rank must call them in the same order."""

    def __init__(self, backend: str, store: Any, rank: int, ranks: int, timeout_s: float) -> None:
        self.rank = rank
        self.ranks = ranks
        self._group = _make(backend, dist.PrefixStore("group", store), rank, ranks, timeout_s)

    def sum(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum over all ranks."""
        self._group.allreduce([tensor]).wait()

    def sum_to_leader(self, tensor: Tensor) -> None:
        """Replace the leader's tensor by the sum; what is in the others' afterwards is not defined."""
        options = dist.ReduceOptions()
        options.rootRank = LEADER
        self._group.reduce([tensor], options).wait()

    def scatter_sums(self, mine: Tensor, whole: Tensor) -> None:
        """Give each rank the sum of its chunk of ``whole``."""
        self._group._reduce_scatter_base(mine, whole).wait()

    def gather(self, whole: Tensor, mine: Tensor) -> None:
        """Put the chunks of all ranks into ``whole``."""
        self._group._allgather_base(whole, mine).wait()

    def copy_from_leader(self, tensor: Tensor) -> None:
        """Replace the tensor by the leader's; ends when all ranks have begun, as the others do."""
        options = dist.BroadcastOptions()
        options.rootRank = LEADER
        self._group.broadcast([tensor], options).wait()
        self._group.allreduce([torch.zeros(1, device=tensor.device)]).wait()


def _make(backend: str, store: Any, rank: int, ranks: int, timeout_s: float) -> Any:
    timeout = timedelta(seconds=timeout_s)
    if backend == "gloo":
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=LOOPBACK)]
        options._timeout = timeout
        return dist.ProcessGroupGloo(store, rank, ranks, options)
    kind = getattr(dist, "ProcessGroupNCCL", None)
    if backend == "nccl" and kind is not None:
        options = kind.Options()
        options._timeout = timeout
        return kind(store, rank, ranks, options)
    raise ConfigError(
        f"push_pull of CUDA tensors needs PyTorch with {backend}, and this one ({torch.__version__}) has "
        "none; install a build with CUDA, or pass tensor.cpu()"
    )
