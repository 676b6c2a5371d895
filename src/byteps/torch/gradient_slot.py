"""One parameter of a ``GradientExchange``: its hook, the memory its gradient is summed in, its operation.

The hook runs once per parameter and backward pass, between two layers' work: it is written for speed. What
can be known before is kept in the slot, and the session is called directly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from byteps.errors import BytePSError
from byteps.torch import memory, ops
from byteps.worker import current
from byteps.worker.interface import Spec

if TYPE_CHECKING:
    from byteps.torch.gradients import GradientExchange
    from byteps.torch.rates import Rates
    from byteps.worker import tensors
    from byteps.worker.handle import Handle
    from byteps.worker.session import Session

__all__ = ["Slot"]

_STRIDED = torch.strided
# Above this the copy takes longer than the call, and torch does it without holding the interpreter's lock.
_CORE_COPIES_BYTES = 65536


class Slot:
    """The gradient of one parameter. ``index`` is its place in the map of used parameters."""

    __slots__ = (
        "_address",
        "_buffer",
        "_core_copies",
        "_hook",
        "_permuted",
        "_start",
        "declared",
        "exchange",
        "handle",
        "index",
        "is_cast",
        "left",
        "name",
        "order",
        "parameter",
        "priority",
        "wire_dtype",
    )

    def __init__(self, exchange: GradientExchange, name: str, parameter: Tensor, index: int) -> None:
        self.exchange = exchange
        self.name = name
        self.parameter = parameter
        self.index = index
        self.priority = -index
        self.left = exchange.passes_per_step  # backward passes until the gradient is pushed
        self.handle: Handle[Any] | None = None  # of this step, until somebody has waited for it
        self.wire_dtype = exchange.compression.wire_dtype(parameter.dtype)
        self.is_cast = self.wire_dtype is not parameter.dtype
        # The memory's order of dimensions, outermost first: what travels is the memory as it lies.
        self.order = _order(parameter)
        self._permuted = self.order != tuple(range(parameter.dim()))
        self.declared: tensors.Tensor = None  # type: ignore[assignment]  # set by bind()
        # A small gradient is copied by the core, which costs less than telling torch to do it.
        nbytes = parameter.numel() * parameter.element_size()
        self._core_copies = nbytes <= _CORE_COPIES_BYTES and not self._permuted
        self._address = 0  # of the buffer
        self._buffer: Tensor | None = None  # what travels, where that is not the gradient autograd made
        self._start: Callable[[Session, Tensor], Handle[Any]] = self._start_in_place
        self._hook: Any = None

    # Set-up

    def spec(self, codec: str) -> Spec:
        """What ranks must agree on. The shape is that of the memory, so that other strides are told too."""
        number = ops.number(self.parameter.new_empty(0, dtype=self.wire_dtype), "declare", self.name)
        shape = self.parameter.shape
        return Spec(self.name, number, tuple(shape[dim] for dim in self.order), codec)

    def bind(self, session: Session) -> None:
        """Prepare for the operations of a membership, in which the tensor has been declared."""
        self.declared = session.tensors[self.name]
        self._buffer = self.handle = None
        self.left = self.exchange.passes_per_step
        if not self.parameter.is_cpu:
            self._start = self._start_on_device
        elif self.is_cast:
            self._start = self._start_cast
        else:
            self._start = self._start_in_arena if session.has_arena else self._start_in_place
        self.hook()

    def hook(self) -> None:
        """Be called when the gradient is there; a frozen parameter gets its hook once it is not any more."""
        if self._hook is None and self.parameter.requires_grad:
            parameter: Any = self.parameter  # the method has no types
            self._hook = parameter.register_post_accumulate_grad_hook(self._ready)

    def remove(self) -> None:
        """Be called no more."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self.handle = None

    # Operations

    def _ready(self, parameter: Tensor) -> None:
        """The hook: one more backward pass has added to the gradient."""
        exchange = self.exchange
        if exchange.paused:
            return
        exchange.is_open = True
        self.left = left = self.left - 1
        if left > 0:
            return
        if left < 0:
            self._refuse_pass()
        session = current.session
        if session is not exchange.session:
            session = exchange.bind()
            if exchange.is_idle:
                return
            exchange.is_open, self.left = True, 0
        if exchange.readiness is not None:
            exchange.readiness.append(self)
        grad = parameter.grad
        if grad.layout is not _STRIDED or grad.requires_grad:  # type: ignore[union-attr]
            grad = self._plain(grad)  # type: ignore[arg-type]
        if exchange.rates is not None:
            self._rate(exchange.rates, grad)  # type: ignore[arg-type]
        self.handle = self._start(session, grad)  # type: ignore[arg-type]

    def push(self, session: Session) -> None:
        """Start now, whatever the number of passes; without a gradient, contribute zeros."""
        grad = self.parameter.grad
        if grad is None:
            grad = torch.zeros_like(self.parameter, requires_grad=False)
            self.parameter.grad = grad
        elif grad.layout is not _STRIDED or grad.requires_grad:
            grad = self._plain(grad)
        if self.exchange.rates is not None:
            self._rate(self.exchange.rates, grad)
        self.handle = self._start(session, grad)

    def _rate(self, rates: Rates, grad: Tensor) -> None:
        """Tell the core what the optimizer goes by now; weight decay comes before the core's momentum."""
        self.declared.lr, self.declared.mu, decay = rates.of(self.parameter)
        if decay:
            grad.add_(self.parameter.detach(), alpha=decay)

    def wait(self) -> None:
        """Until ``parameter.grad`` is the result; at once if nothing was pushed."""
        handle = self.handle
        self.left = self.exchange.passes_per_step
        if handle is not None:
            self.handle = None
            handle.wait()
            if self.is_cast and self.parameter.grad is not None:
                self.parameter.grad.detach().copy_(self._buffer)  # type: ignore[arg-type]

    def _start_in_arena(self, session: Session, grad: Tensor) -> Handle[Any]:
        buffer = self._buffer
        if buffer is None:
            self._buffer = buffer = self._like_parameter(memory.empty)
            self._address = buffer.data_ptr()
        address = source = self._address
        if grad is not buffer:  # it is after zero_grad(set_to_none=False)
            if self._core_copies and grad.is_contiguous() and not grad.is_neg():
                source = grad.data_ptr()
            else:
                buffer.copy_(grad)
            self.parameter.grad = buffer
        return session.push_pull(
            self.declared, source, address, self.exchange.average, self.priority, (grad, buffer), None
        )

    def _start_in_place(self, session: Session, grad: Tensor) -> Handle[Any]:
        lies = grad.permute(self.order).is_contiguous() if self._permuted else grad.is_contiguous()
        if not lies or grad.is_neg():
            grad = self.parameter.grad = self._like_parameter(torch.empty).copy_(grad)
        address = grad.data_ptr()
        exchange = self.exchange
        return session.push_pull(self.declared, address, address, exchange.average, self.priority, grad, None)

    def _start_cast(self, session: Session, grad: Tensor) -> Handle[Any]:
        wire = self._buffer
        if wire is None:
            wire = self._like_parameter(memory.empty if session.has_arena else torch.empty)
            self._buffer = wire
        wire.copy_(grad)
        address = wire.data_ptr()
        exchange = self.exchange
        return session.push_pull(self.declared, address, address, exchange.average, self.priority, wire, None)

    def _start_on_device(self, session: Session, grad: Tensor) -> Handle[Any]:
        exchange = self.exchange
        target = grad
        if self.is_cast:
            target = self._buffer = grad.to(self.wire_dtype)
        if self._permuted:
            target = target.permute(self.order)
        return ops.push_pull_async_inplace(
            target, exchange.average, self.name, self.priority, exchange.compression_params
        )

    # Rare

    def _like_parameter(self, allocate: Callable[..., Tensor]) -> Tensor:
        """A tensor with the parameter's shape and strides (if those are dense) in the dtype that travels."""
        shape = self.parameter.shape
        flat = allocate(tuple(shape[dim] for dim in self.order), dtype=self.wire_dtype)
        return flat.permute([self.order.index(dim) for dim in range(len(shape))]) if self._permuted else flat

    def _plain(self, grad: Tensor) -> Tensor:
        """A dense gradient without a graph. Rows of a sparse one that nobody used are sent as zeros."""
        grad = grad.detach()
        if grad.layout is not _STRIDED:
            if not self.exchange.warned_of_sparse:
                self.exchange.warned_of_sparse = True
                warnings.warn(
                    f"{self.name}: its gradient is sparse ({grad.layout}); it is converted to a dense one, "
                    "here and for every other sparse gradient",
                    stacklevel=2,
                )
            grad = self.parameter.grad = grad.to_dense()
        return grad

    def _refuse_pass(self) -> None:
        self.left = 0
        passes = self.exchange.passes_per_step
        raise BytePSError(
            f"backward: {self.name} expected {passes} backward pass(es) before step() and got one more; call "
            "step() or synchronize() between them, or set backward_passes_per_step"
        )


def _order(parameter: Tensor) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost; in their own order if there are gaps."""
    strides = parameter.stride()
    order = tuple(sorted(range(len(strides)), key=lambda dim: (-strides[dim], dim)))
    if parameter.is_contiguous() or not parameter.permute(order).is_contiguous():
        return tuple(range(len(strides)))
    return order
