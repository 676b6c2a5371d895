"""Push-pull of tensors on a device: reduced on the machine by ``torch.distributed``, between machines by us.

    reduce_scatter over the ranks of the machine        device
    copy of this rank's part to page-locked memory      device to host
    push_pull of the part, by this rank alone           network
    copy back, all_gather                               host to device

``route`` says which of these a job needs, ``pipeline`` carries them out, ``order`` keeps the ranks of a
machine in step. The backend is a parameter: CUDA tensors go with NCCL, and the tests run the same code with
Gloo on CPU tensors. It has not been run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from byteps.errors import ConfigError, UnsupportedTensorError
from byteps.tensor import dtypes
from byteps.torch.device.group import LEADER, Group, connect_store, serve_store
from byteps.torch.device.operation import Operation
from byteps.torch.device.order import Order
from byteps.torch.device.pipeline import Pipeline
from byteps.torch.device.route import Route, choose, part
from byteps.worker import tensors
from byteps.worker.handle import Handle
from byteps.worker.session import Session

__all__ = ["BACKENDS", "is_needed", "push_pull"]

BACKENDS = {"cuda": "nccl"}  # device -> backend of torch.distributed
TABLE = "byteps.torch.device"  # the tensor in which machines tell their numbers of ranks and their stores


def is_needed(session: Session) -> bool:
    """True when machines sum before they push: they are grouped, and at least one has several ranks.

    Every rank comes to the same answer. Otherwise each rank pushes its whole tensor from host memory.
    """
    return session.config.grouped and session.size > session.config.num_worker


def push_pull(
    session: Session,
    declared: tensors.Tensor,
    memory: Tensor,
    average: bool,
    priority: int,
    result: Tensor,
    finish: Callable[[], object] | None,
    backend: str,
) -> Handle[Tensor]:
    """Start a push-pull in place of ``memory``, contiguous and on a device; the handle gives ``result``.

    ``declared`` is the whole tensor as every rank has declared it: so ranks that disagree are told, though
    its own bytes never travel.
    """
    if declared.native is None:  # no elements
        return Handle(session, None, result, None)
    pipeline = _pipeline(session, memory.device, backend)
    operation = Operation(
        name=declared.name,
        key=pipeline.key(declared),
        work=memory.view(-1),
        average=average,
        priority=priority,
        rail=_rail(session, pipeline, declared, memory.numel()),
    )
    pipeline.submit(operation)
    if declared.conflict:  # the news may have come before there was an operation to end
        pipeline.refuse(declared.name, declared.conflict)
    declared.track(operation)
    return Handle(session, operation, result, memory, finish)


def _rail(
    session: Session, pipeline: Pipeline, declared: tensors.Tensor, elements: int
) -> tensors.Tensor | None:
    """The part that this rank pushes by itself; average and sum over machines are made by the server."""
    group = pipeline.group
    if pipeline.route is Route.MACHINE and declared.is_rated:
        raise ConfigError(
            f"push_pull of {declared.name}: momentum in compression_params is not applied to tensors of a "
            "GPU that stay on one machine; leave the key out, and the optimizer applies it"
        )
    if pipeline.route is Route.MACHINE or (pipeline.route is Route.LEADER and group.rank != LEADER):
        return None
    count = elements if pipeline.route is Route.LEADER else part(elements, group.ranks, group.rank)
    if count == 0:  # a tensor with fewer elements than ranks
        return None
    name = f"{declared.name}.rail.{group.rank}"
    # In step with the whole tensor, of which ranks that were refused have generations without a rail.
    rail = session.tensor(
        "push_pull",
        name,
        declared.dtype,
        (count,),
        declared.codec,
        direct=True,
        generation=declared.generation,
    )
    rail.lr, rail.mu = declared.lr, declared.mu
    return rail


def _pipeline(session: Session, device: torch.device, backend: str) -> Pipeline:
    found = session.follower(Pipeline, lambda: _connect(session, device, backend))
    if found.device != device:
        raise UnsupportedTensorError(
            f"push_pull of a tensor on {device}: this rank has pushed from {found.device} before, expected "
            "one device for each rank; start as many ranks as there are devices"
        )
    return found


def _connect(session: Session, device: torch.device, backend: str) -> Pipeline:
    """Meet the other ranks of this machine. All ranks of the job come here with their first tensor."""
    config, timeout_s = session.config, session.config.op_timeout_s
    machine, machines = config.worker_id or 0, config.num_worker
    # One sum tells everybody everything: each leader adds its port and its number of ranks in the place of
    # its machine.
    table = torch.zeros(2, machines, dtype=torch.int64)
    store = serve_store(timeout_s) if session.local_rank == LEADER else None
    if store is not None:
        table[0, machine], table[1, machine] = store.port, session.local_size
    spec = session.tensor("push_pull", TABLE, dtypes.NUMBERS["int64"], tuple(table.shape))
    address = table.data_ptr()
    session.push_pull(spec, address, address, False, 0, table, table).wait()
    ports, sizes = table.tolist()
    group = Group(
        backend, connect_store(ports[machine], timeout_s), session.local_rank, session.local_size, timeout_s
    )
    order = Order(lambda: connect_store(ports[machine], timeout_s), session.local_size, timeout_s)
    return Pipeline(session, group, order, choose(sizes, config.serverless), device, store)
