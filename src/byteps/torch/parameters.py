"""Start every rank from the same numbers: ``broadcast_parameters``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from byteps.torch.ops import NUMBERS, broadcast_async, declare
from byteps.worker import current

__all__ = ["as_bytes", "broadcast_parameters", "broadcast_tensors"]


def broadcast_parameters(
    params: Mapping[str, object] | Iterable[tuple[str, object]], root_rank: int, prefix: str = "Parameter."
) -> None:
    """Give every rank the root's values, exactly and in place.

        bps.broadcast_parameters(model.state_dict(), root_rank=0)

    Takes a ``state_dict()``, ``named_parameters()`` or any pairs of name and tensor; what is not a tensor
    is left alone. Tensors of every dtype work, because bits are moved and not added. All of them are
    declared with one message and travel together. Raises DeclarationError naming the tensor when models
    differ between ranks. In asynchronous training this sets the weights that the servers hold.
    """
    current.required("broadcast_parameters")
    pairs = params.items() if isinstance(params, Mapping) else params
    found, leftovers = {}, []
    for name, value in pairs:
        if isinstance(value, Tensor):
            tensor = value.detach()
            memory = tensor if tensor.dtype in NUMBERS else as_bytes(tensor)
            if memory.data_ptr() != tensor.data_ptr():
                leftovers.append((tensor, memory))
            found[f"{prefix}{name}"] = memory
    broadcast_tensors(found, root_rank)
    for tensor, memory in leftovers:
        tensor.copy_(memory.view(tensor.dtype).view(tensor.shape))


def broadcast_tensors(found: Mapping[str, Tensor], root_rank: int) -> None:
    """Broadcast tensors in place, all at once; the first forward pass needs them in this order."""
    session = current.required("broadcast")
    declare(found)

    def run() -> None:
        handles = [
            broadcast_async(memory, root_rank, name, priority=-index)
            for index, (name, memory) in enumerate(found.items())
        ]
        for handle in handles:
            handle.wait()

    if not session.config.enable_async:
        run()
        return
    # The servers hold a value that the root replaces and the others read. Nobody may read it before, or add
    # to the old one after: without the barriers a second broadcast would give whatever the first one left.
    session.barrier()
    if session.rank == root_rank:
        run()
    session.barrier()
    if session.rank != root_rank:
        run()


def as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, for dtypes that cannot be summed (bool, int16); a copy if there are gaps."""
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
