"""A gradient that is on its way to the other ranks: whoever touches it gets the result, or is told.

While the core reads and writes the memory of a gradient, ``p.grad`` is of the class ``InFlight``. PyTorch
asks that class before it does anything with the tensor in Python. So a script that clips, scales or prints
such a gradient first waits for it, and works with the average as in one process; then it is an ordinary
tensor again. Most never meet one, because the end of ``backward()`` waits for all. It is for CrossBarrier,
which does not wait there, and for hooks of the user that run between ours and the end.

Inside a backward pass nobody can wait: what this rank waits for may be a gradient of another rank that comes
only when that one is through its own backward pass, and that one waits for us. There it is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from byteps.errors import BytePSError

if TYPE_CHECKING:
    from byteps.torch.gradients import GradientExchange

__all__ = ["InFlight", "inside_backward", "watch"]

_exchanges: weakref.WeakSet[GradientExchange] = weakref.WeakSet()  # all that there are, in no order


def watch(exchange: GradientExchange) -> None:
    """From now on, touching a gradient of ``exchange`` on its way waits for it.

    ``_settle`` is kept out of compiled programs here and not where it is written: that loads the compiler,
    half of the time that ``import byteps.torch`` took, and an optimizer has loaded it by now.
    """
    global _settle
    if _settle is _settle_touched:
        _settle = torch.compiler.disable(_settle_touched)  # type: ignore[no-untyped-call]
    _exchanges.add(exchange)


class InFlight(Tensor):
    """The class of a gradient between its push and its wait. Only ``__class__`` is changed, to and fro."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func not in _HARMLESS:
            _settle(func, (*args, *(kwargs or {}).values()))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def _settle_touched(func: Callable[..., Any], arguments: Iterable[Any]) -> None:
    """Wait for the gradients among ``arguments``; refuse it where nobody can wait."""
    ids = _ids(arguments)
    owners = [exchange for exchange in tuple(_exchanges) if exchange.names_in_flight(ids)]
    if inside_backward():
        names = [name for exchange in owners for name in exchange.names_in_flight(ids)]
        raise BytePSError(_refusal(func, names))
    for exchange in owners:
        exchange.finish_touched()


_settle: Callable[[Callable[..., Any], Iterable[Any]], None] = _settle_touched

# What looks at the tensor and not at its values.
_NAMES = ("shape", "dtype", "device", "layout", "requires_grad", "grad_fn", "is_sparse", "is_cpu", "is_cuda")
_HARMLESS: frozenset[Any] = frozenset(
    (*(getattr(Tensor, name).__get__ for name in _NAMES), Tensor.size, Tensor.dim, Tensor.numel)
)


def inside_backward() -> bool:
    """True in a thread that runs a backward pass, also where checkpointing computes a forward pass again."""
    return torch._C._current_graph_task_id() != -1


def _ids(arguments: Iterable[Any]) -> set[int]:
    """Of what is given, alone or in lists."""
    return {
        id(each) for given in arguments for each in (given if isinstance(given, (list, tuple)) else (given,))
    }


def _refusal(func: Callable[..., Any], names: list[str]) -> str:
    return (
        f"{getattr(func, '__name__', 'use')}: the gradient {', '.join(names)} is on its way to the other "
        "ranks, and this is inside the backward pass; use it after backward(), when it is the average, or "
        "change it before it leaves, in parameter.register_hook() or in a hook registered before ours"
    )
