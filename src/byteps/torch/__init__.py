"""The verbs of ``byteps`` on PyTorch tensors, and what training with PyTorch needs besides.

    import byteps.torch as bps

    bps.init()
    optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    bps.broadcast_parameters(model.state_dict(), root_rank=0)
    bps.broadcast_optimizer_state(optimizer, root_rank=0)

Pure Python over addresses: nothing here is compiled against PyTorch. ``import byteps.torch as hvd`` runs
scripts that were written for Horovod: docs/horovod.md has the table of its names.
"""

from __future__ import annotations

from typing import Any as _Any

from byteps import (
    Handle,
    barrier,
    counters,
    get_pushpull_speed,
    init,
    is_initialized,
    local_rank,
    local_size,
    poll,
    rank,
    resume,
    shutdown,
    size,
    step,
    suspend,
    synchronize,
)
from byteps.plugin.horovod import (
    HorovodInternalError,
    ProcessSet,
    add_process_set,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    remove_process_set,
    rocm_built,
    start_timeline,
    stop_timeline,
)
from byteps.plugin.horovod import not_here as _not_here
from byteps.plugin.reductions import Adasum, Average, Max, Min, Product, Sum
from byteps.plugin.torch_registry import make_known as _make_known
from byteps.torch.allreduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    sparse_allreduce_async,
)
from byteps.torch.collectives import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    grouped_allgather,
    grouped_allgather_async,
)
from byteps.torch.comm_hook import CommHookState, push_pull_hook
from byteps.torch.compression import Compression
from byteps.torch.differentiable import push_pull
from byteps.torch.memory import empty, empty_like
from byteps.torch.objects import allgather_object, broadcast_object
from byteps.torch.ops import (
    broadcast,
    broadcast_async,
    declare,
    push_pull_async,
    push_pull_async_inplace,
    push_pull_inplace,
)
from byteps.torch.ops import broadcast as broadcast_
from byteps.torch.ops import broadcast_async as broadcast_async_
from byteps.torch.ops import push_pull_async_inplace as byteps_push_pull
from byteps.torch.optimizer import DistributedOptimizer
from byteps.torch.optimizer_state import broadcast_optimizer_state
from byteps.torch.parameters import broadcast_parameters
from byteps.torch.reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from byteps.torch.sync_batch_norm import SyncBatchNorm
from byteps.torch.uneven import join, join_context

__all__ = [
    "Adasum",
    "Average",
    "CommHookState",
    "Compression",
    "DistributedOptimizer",
    "Handle",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "byteps_push_pull",
    "ccl_built",
    "counters",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "declare",
    "empty",
    "empty_like",
    "get_pushpull_speed",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "join_context",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "push_pull",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_hook",
    "push_pull_inplace",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "resume",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "step",
    "stop_timeline",
    "suspend",
    "synchronize",
]


def _create(options: _Any, backend_options: _Any = None) -> _Any:
    from byteps.torch import process_group  # few programs make one

    return process_group.create(options, backend_options)


_make_known(_create)  # init_process_group("byteps")


_NOT_HERE = {
    "elastic": "a job keeps its members; continue from a checkpoint",
}


def __getattr__(name: str) -> _Any:
    if name in _NOT_HERE:
        raise AttributeError(_not_here(name, _NOT_HERE[name]))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
