"""``broadcast_object``: any Python value of one rank, on all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from byteps.errors import ConfigError, UnsupportedTensorError
from byteps.observe.text import clean
from byteps.plugin.horovod import check_process_set
from byteps.torch import tree
from byteps.torch.ops import NUMBERS
from byteps.torch.parameters import as_bytes, broadcast_tensors
from byteps.worker import current

__all__ = ["allgather_object", "broadcast_object", "broadcast_tree"]


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The ``obj`` of every rank, in rank order, on all of them.

        losses = bps.allgather_object({"rank": bps.rank(), "loss": loss})

    A broadcast from each rank: what travels how is as for ``broadcast_object``.
    """
    session = current.required("allgather_object")
    return [
        broadcast_tree(obj, rank, f"{name or 'gathered'}.{rank}", allow_pickle=True)
        for rank in range(session.size)
    ]


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: object = None
) -> Any:
    """The root's ``obj``, on every rank; on the root it is ``obj`` itself.

        epoch = bps.broadcast_object(epoch, root_rank=0, name="epoch")

    None, numbers, text, bytes, dtypes, tensors, and the lists, tuples and dicts of them travel without
    pickle. **Anything else in it is pickled by the root and unpickled by the others**: that runs whatever
    code the root's object asks for, so it needs the same trust as the training script itself. ``name`` tells
    broadcasts apart where ranks could call them in different order.
    """
    check_process_set("broadcast_object", process_set)
    return broadcast_tree(obj, root_rank, name or "object", allow_pickle=True)


def broadcast_tree(
    value: Any,
    root_rank: int,
    name: str,
    *,
    allow_pickle: bool = False,
    device_of: Callable[[str], torch.device] = torch.device,
) -> Any:
    """``broadcast_object`` where pickle can be forbidden."""
    session = current.required("broadcast_object")
    if root_rank not in range(session.size):
        raise ConfigError(
            f"broadcast of {name}: root_rank={root_rank!r} is not a rank of this job; "
            f"expected 0 to {session.size - 1}"
        )
    if session.size == 1:
        return value
    prefix = f"Object.{name}."
    is_root = session.rank == root_rank
    data, failed = b"", False
    tensors: list[torch.Tensor] = []
    if is_root:
        try:
            data, tensors = tree.pack(value, name, allow_pickle=allow_pickle)
        except Exception as error:  # the others wait: they are told, too
            data, failed = str(error).encode(), True
    # The others learn the length first: what they declare must be like the root's.
    head = torch.tensor([len(data), failed])
    broadcast_tensors({prefix + "head": head}, root_rank)
    content = torch.empty(int(head[0]), dtype=torch.uint8)
    if data:
        content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    broadcast_tensors({prefix + "content": content}, root_rank)
    data = content.numpy().tobytes()
    if head[1]:
        raise UnsupportedTensorError(
            f"broadcast from rank {root_rank}: {clean(data.decode(errors='replace'))}"
        )
    if not is_root:
        received = tree.unpack(data, allow_pickle=allow_pickle, device_of=device_of)
        value, tensors = received.value, received.tensors
    moved = {}
    for index, tensor in enumerate(tensors):
        moved[f"{prefix}{index}"] = tensor if tensor.dtype in NUMBERS else as_bytes(tensor)
    broadcast_tensors(moved, root_rank)
    return value
