"""Start every rank from the same numbers: ``broadcast_parameters``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from byteps.torch.ops import NUMBERS, broadcast_async, declare
from byteps.worker import current

__all__ = ["broadcast_parameters"]


def broadcast_parameters(
    params: Mapping[str, object] | Iterable[tuple[str, object]], root_rank: int, prefix: str = "Parameter."
) -> None:
    """Give every rank the root's values, exactly and in place.

        bps.broadcast_parameters(model.state_dict(), root_rank=0)

    Takes a ``state_dict()``, ``named_parameters()`` or any pairs of name and tensor; what is not a tensor
    is left alone. Tensors of every dtype work, because bits are moved and not added. All of them are
    declared with one message and travel together. Raises DeclarationError naming the tensor when models
    differ between ranks.
    """
    current.required("broadcast_parameters")
    pairs = params.items() if isinstance(params, Mapping) else params
    found, leftovers = {}, []
    for name, value in pairs:
        if isinstance(value, Tensor):
            tensor = value.detach()
            memory = tensor if tensor.dtype in NUMBERS else _as_bytes(tensor)
            if memory.data_ptr() != tensor.data_ptr():
                leftovers.append((tensor, memory))
            found[f"{prefix}{name}"] = memory
    declare(found)
    # The first forward pass needs them in this order.
    handles = [
        broadcast_async(memory, root_rank, name, priority=-index)
        for index, (name, memory) in enumerate(found.items())
    ]
    for handle in handles:
        handle.wait()
    for tensor, memory in leftovers:
        tensor.copy_(memory.view(tensor.dtype).view(tensor.shape))


def _as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a tensor whose dtype cannot be summed (bool, complex, int16); a copy if there are gaps."""
    return tensor.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
