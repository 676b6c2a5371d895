"""The operations of ``byteps.torch``: the verbs of ``byteps`` on CPU tensors, by address, without a copy.

Tensors on a GPU are summed on their machine first (``byteps.torch.device``) where it has several ranks, and
else go through host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from byteps.errors import UnsupportedTensorError
from byteps.tensor import dtypes
from byteps.torch import memory
from byteps.worker import current, tensors
from byteps.worker.handle import Handle
from byteps.worker.interface import Spec
from byteps.worker.session import Session
from byteps.worker.tensors import codec_of

__all__ = [
    "broadcast",
    "broadcast_async",
    "declare",
    "push_pull_async",
    "push_pull_async_inplace",
    "push_pull_inplace",
]

NUMBERS: dict[torch.dtype, int] = {getattr(torch, name): number for number, name in enumerate(dtypes.NAMES)}
DEVICES = ("cpu", "cuda")
_STRIDED = torch.strided


def declare(
    name: str | Mapping[str, Tensor],
    tensor: Tensor | None = None,
    compression_params: Mapping[str, object] | None = None,
) -> None:
    """Declare tensors ahead of their first use, with one message for all: see ``byteps.declare``.

    bps.declare({name: p for name, p in model.named_parameters()})
    """
    session = current.required("declare")
    codec = codec_of(compression_params)
    given = {name: tensor} if isinstance(name, str) else name
    session.declare(
        Spec(each, number(value, "declare", each), tuple(value.shape), codec)
        for each, value in given.items()
        if value is not None
    )


def push_pull_async(
    tensor: Tensor,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Handle[Tensor]:
    """Start a push-pull; ``synchronize(handle)`` gives a new tensor. Do not change the argument before.

    Averages of integers are rounded toward zero.
    """
    session = current.session or current.required("push_pull")
    declared = _declared(session, "push_pull", tensor, name, compression_params)
    if not tensor.is_cpu:
        copy = tensor.detach().resolve_neg().clone(memory_format=torch.contiguous_format)
        return _device_push_pull(session, declared, copy, average, priority)
    source = tensor if _is_plain(tensor) else _plain_copy(tensor)
    result = memory.empty_like(source) if session.has_arena else torch.empty_like(source)
    return session.push_pull(
        declared, source.data_ptr(), result.data_ptr(), average, priority, (source, result), result
    )


def push_pull_async_inplace(
    tensor: Tensor,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Handle[Tensor]:
    """Start a push-pull whose result replaces the tensor; do not touch it before ``synchronize(handle)``.

    A tensor that is not contiguous is updated by ``synchronize``, any other by the network itself. Averages
    of integers are rounded toward zero.
    """
    session = current.session or current.required("push_pull")
    declared = _declared(session, "push_pull", tensor, name, compression_params)
    if not tensor.is_cpu:
        return _device_push_pull(session, declared, tensor, average, priority)
    target, finish = _memory(tensor)
    address = target.data_ptr()
    return session.push_pull(declared, address, address, average, priority, target, tensor, finish)


def _device_push_pull(
    session: Session, declared: tensors.Tensor, tensor: Tensor, average: bool, priority: int
) -> Handle[Tensor]:
    """In place, for a tensor that is not in host memory."""
    from byteps.torch import device  # loads torch.distributed, which CPU tensors do not need

    if device.is_needed(session):
        target, finish = _memory(tensor)
        backend = device.BACKENDS[tensor.device.type]
        return device.push_pull(session, declared, target, average, priority, tensor, finish, backend)
    target, finish = _host_memory(tensor)
    address = target.data_ptr()
    return session.push_pull(declared, address, address, average, priority, target, tensor, finish)


def push_pull_inplace(
    tensor: Tensor,
    average: bool = True,
    name: str | None = None,
    priority: int = 0,
    compression_params: Mapping[str, object] | None = None,
) -> Tensor:
    """Replace ``tensor`` by the average (or the sum) over all ranks, and return it.

    Averages of integers are rounded toward zero.
    """
    return push_pull_async_inplace(tensor, average, name, priority, compression_params).wait()


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, priority: int = 0
) -> Handle[Tensor]:
    """Start a broadcast in place; ``synchronize(handle)`` gives the tensor."""
    session = current.session or current.required("broadcast")
    declared = _declared(session, "broadcast", tensor, name, None)
    target, finish = _memory(tensor) if tensor.is_cpu else _host_memory(tensor)
    return session.broadcast(declared, target.data_ptr(), root_rank, priority, target, tensor, finish)


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """Write the exact bits of the root's tensor into ``tensor`` on every rank, and return it."""
    return broadcast_async(tensor, root_rank, name).wait()


def number(tensor: Tensor, verb: str, name: str | None) -> int:
    """The wire's number of the tensor's dtype; refuses, with the reason, what cannot be sent by address."""
    if not isinstance(tensor, Tensor):
        raise UnsupportedTensorError(
            f"{verb} of {name or 'something without a name'}: it is a {type(tensor).__name__}, expected a "
            "torch.Tensor; torch.as_tensor() makes one from numbers, lists and arrays"
        )
    found = NUMBERS.get(tensor.dtype)
    if found is None or tensor.layout is not _STRIDED or tensor.device.type not in DEVICES:
        raise UnsupportedTensorError(f"{verb} of {name or 'a tensor without a name'}: {_refusal(tensor)}")
    return found


def _refusal(tensor: Tensor) -> str:
    if tensor.layout is not _STRIDED:
        return f"its layout is {tensor.layout}, expected a dense tensor; pass tensor.to_dense()"
    if tensor.is_meta:
        return "it is on the device meta and has no values yet; make them first with model.to_empty()"
    if tensor.device.type not in DEVICES:
        return f"it is on the device {tensor.device}, expected the CPU or CUDA; pass tensor.cpu()"
    return f"its dtype is {tensor.dtype}, expected {dtypes.VALID}; convert it with tensor.to()"


def _declared(
    session: Session,
    verb: str,
    tensor: Tensor,
    name: str | None,
    compression_params: Mapping[str, object] | None,
) -> tensors.Tensor:
    """The declared tensor for an operation, after a look at everything that could make it wrong."""
    dtype = number(tensor, verb, name)
    shape = tensor.shape
    declared = session.tensors.get(name)  # type: ignore[arg-type]  # None is not found, as it should be
    if declared is None or declared.shape != shape or declared.dtype != dtype or compression_params:
        declared = session.tensor(verb, name, dtype, tuple(shape), codec_of(compression_params))
    return declared


def _is_plain(tensor: Tensor) -> bool:
    """True when the values are what lies at the address: no gaps, no negation that is still to be done."""
    return tensor.is_contiguous() and not tensor.is_neg()


def _plain_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().resolve_neg().contiguous()


def _memory(tensor: Tensor) -> tuple[Tensor, Callable[[], object] | None]:
    """Memory for the result, and what is left to do when it has landed there."""
    plain = _is_plain(tensor)
    if plain and not tensor.requires_grad:
        return tensor, None
    target = tensor.detach() if plain else _plain_copy(tensor)

    def finish() -> None:
        if not plain:
            tensor.detach().copy_(target)
        if tensor.requires_grad:
            torch.autograd.graph.increment_version(tensor)  # what a backward pass saved of it is stale now

    return target, finish


def _host_memory(tensor: Tensor) -> tuple[Tensor, Callable[[], object]]:
    """The same for a tensor of a device: a copy on the host, to be copied back."""
    target = _plain_copy(tensor).cpu()
    return target, lambda: tensor.detach().copy_(target)
