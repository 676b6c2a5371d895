"""One parameter of a ``GradientExchange``: its hook, the memory its gradient is summed in, its operation.

The hook runs once per parameter and backward pass, between two layers' work: it is written for speed. What
can be known before is kept in the slot, and the session is called directly.

``p.grad`` stays the object that it is, for scripts may hold it. On a machine with several ranks it is given
memory that they share when the result is there, the same in each step, unless somebody still holds a
gradient of an earlier step or a view of it: then he keeps that, and the slot takes new memory. A gradient
that is itself a view, as where a script has all gradients in one flat tensor, keeps its memory: the result is
copied there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from byteps.errors import BytePSError
from byteps.tensor.tuning import CORE_COPIES_BYTES
from byteps.torch import memory, ops
from byteps.torch.gradient_buffer import GradientBuffer, memory_order
from byteps.torch.in_flight import InFlight
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
_task: Callable[[], int] = torch._C._current_graph_task_id


class Slot:
    """The gradient of one parameter. ``index`` is its place in the roll call."""

    __slots__ = (
        "_buffer",
        "_core_copies",
        "_hook",
        "_keeps_memory",
        "_permuted",
        "_result",
        "_start",
        "_version",
        "declared",
        "exchange",
        "grad",
        "handle",
        "index",
        "is_cast",
        "is_fresh",
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
        self.handle: Handle[Any] | None = None  # of this step, until somebody has waited for it
        self.grad: Tensor | None = None  # what the operation works on, as long as there is one
        self.wire_dtype = exchange.compression.wire_dtype(parameter.dtype)
        self.is_cast = self.wire_dtype is not parameter.dtype
        # The memory's order of dimensions, outermost first: what travels is the memory as it lies.
        self.order = memory_order(parameter)
        self._permuted = self.order != tuple(range(parameter.dim()))
        self.declared: tensors.Tensor = None  # type: ignore[assignment]  # set by bind()
        # A small gradient is copied by the core, which costs less than telling torch to do it.
        nbytes = parameter.numel() * parameter.element_size()
        self._core_copies = nbytes <= CORE_COPIES_BYTES and not self._permuted
        self._buffer: GradientBuffer | None = None  # what travels, where that is not autograd's own memory
        self._result: Tensor | None = None  # where the result lands, where that is not the gradient
        self._keeps_memory = False  # then the result is copied into the gradient
        self._version: int | None = None  # of such a gradient, when the backward pass was over
        self.is_fresh = False  # a backward pass has added to it and it is still to be exchanged
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
        self._drop()
        self._buffer = None
        self.is_fresh = False
        if not self.parameter.is_cpu:
            self._start = self._start_on_device
        elif self.is_cast:
            self._start = self._start_apart
        else:
            self._start = self._start_in_arena if session.has_arena else self._start_in_place
        self.hook()

    def hook(self) -> None:
        """Be called when the gradient is there; a frozen parameter gets its hook once it is not any more."""
        if self._hook is None and self.parameter.requires_grad:
            parameter: Any = self.parameter  # the method has no types
            self._hook = parameter.register_post_accumulate_grad_hook(self._ready)

    @staticmethod
    def is_hooked(parameter: Any) -> bool:
        """True when an exchange takes care of the gradient of ``parameter``."""
        hooks = parameter._post_accumulate_grad_hooks or {}
        return any(isinstance(getattr(each, "__self__", None), Slot) for each in hooks.values())

    def remove(self) -> None:
        """Be called no more."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._drop()

    def _drop(self) -> None:
        """Forget the operation; the session keeps its memory until the core has let go."""
        if type(self.grad) is InFlight:
            self.grad.__class__ = Tensor  # type: ignore[assignment]
        self.handle = self.grad = self._result = None

    # Operations

    def _ready(self, parameter: Tensor) -> None:
        """The hook: one more backward pass has added to the gradient."""
        exchange = self.exchange
        if exchange.paused:
            return
        grad: Tensor = parameter.grad  # type: ignore[assignment]
        if type(grad) is InFlight and self.handle is None:
            self._leave_to_other()
            return
        task = _task()
        if task != exchange.task:
            exchange.enter(task, grad)
        exchange.is_open = True
        if exchange.passes_left > 1:
            self.is_fresh = True
            return
        if self.handle is not None:
            self._refuse_pass()
        session = current.session
        if session is not exchange.session:
            session = exchange.bind()
            if exchange.is_idle:
                return
            exchange.is_open = True
        if exchange.readiness is not None:
            exchange.readiness.append(self)
        if not exchange.is_announced:
            exchange.announce()
        self._push(session, grad)

    def push(self, session: Session) -> None:
        """Start now, after the backward passes; without a gradient, contribute zeros."""
        grad = self.parameter.grad
        if grad is None:
            grad = self.parameter.grad = torch.zeros_like(self.parameter, requires_grad=False)
        self._push(session, grad)
        self.hook()

    def _push(self, session: Session, grad: Tensor) -> None:
        if grad.layout is not _STRIDED or grad.requires_grad:
            grad = self._plain(grad)
        rates = self.exchange.rates
        if rates is not None:
            self._rate(rates, grad)
        self.is_fresh = False
        self.handle = self._start(session, grad)
        self.grad = grad
        if type(grad) is Tensor:
            grad.__class__ = InFlight

    def wait(self) -> None:
        """Until the gradient is the result; at once if nothing was pushed."""
        handle = self.handle
        if handle is None:
            return
        grad, result = self.grad, self._result
        self.handle = self.grad = self._result = None
        if type(grad) is InFlight:
            grad.__class__ = Tensor  # type: ignore[assignment]
        handle.wait()
        if result is not None:
            self._land(grad, result)  # type: ignore[arg-type]

    def watch(self) -> None:
        """The pass is over, and nobody waits: a change of the user's memory is to be noticed.

        Not before, because views of one tensor have one version, which changes when the others get theirs.
        """
        if self.grad is not None and self._result is not None and self._keeps_memory:
            self._version = self.grad._version

    def _land(self, grad: Tensor, result: Tensor) -> None:
        """Give the gradient the memory of the result, or where it must keep its own, the values."""
        if not self._keeps_memory:
            grad.data = result
            return
        version, self._version = self._version, None
        if version is not None and grad._version != version:
            raise BytePSError(
                f"{self.name}: the memory of its gradient was changed through another tensor while it was on "
                "its way to the other ranks; call optimizer.synchronize() before you change it"
            )
        grad.data.copy_(result)  # by .data, for a new version would mean that somebody has changed it

    # Ways to push. Each is given a dense gradient without a graph.

    def _start_in_arena(self, session: Session, grad: Tensor) -> Handle[Any]:
        buffer = self._buffer
        source = grad.data_ptr()
        if buffer is None or source != buffer.address:  # it is there after zero_grad(set_to_none=False)
            if grad._is_view() or type(grad) is not Tensor:
                return self._start_apart(session, grad)
            if buffer is None or not buffer.is_free():
                buffer = self._new_buffer(session)
            if not self._core_copies or not grad.is_contiguous() or grad.is_neg():
                buffer.tensor.copy_(grad)
                source = buffer.address
            self._result = buffer.tensor
            self._keeps_memory = False
        return session.push_pull(
            self.declared, source, buffer.address, self.exchange.average, self.priority, (grad, buffer), None
        )

    def _start_in_place(self, session: Session, grad: Tensor) -> Handle[Any]:
        lies = grad.permute(self.order).is_contiguous() if self._permuted else grad.is_contiguous()
        if not lies or grad.is_neg() or grad._is_view():
            return self._start_apart(session, grad)
        address = grad.data_ptr()
        exchange = self.exchange
        return session.push_pull(self.declared, address, address, exchange.average, self.priority, grad, None)

    def _start_apart(self, session: Session, grad: Tensor) -> Handle[Any]:
        """In a copy: for a cast, and for memory that is not as it travels, or a view of the user's."""
        buffer = self._buffer
        if buffer is None or not buffer.is_free():
            buffer = self._new_buffer(session)
        self._result = buffer.tensor.copy_(grad)
        self._keeps_memory = True
        address = buffer.address
        exchange = self.exchange
        return session.push_pull(
            self.declared, address, address, exchange.average, self.priority, buffer, None
        )

    def _start_on_device(self, session: Session, grad: Tensor) -> Handle[Any]:
        exchange = self.exchange
        target = grad
        if self.is_cast:
            target = self._result = grad.to(self.wire_dtype)
            self._keeps_memory = True
        if self._permuted:
            target = target.permute(self.order)
        return ops.push_pull_async_inplace(
            target, exchange.average, self.name, self.priority, exchange.compression_params
        )

    def _new_buffer(self, session: Session) -> GradientBuffer:
        allocate = memory.empty if session.has_arena else torch.empty
        self._buffer = GradientBuffer(allocate, self.parameter, self.order, self.wire_dtype)
        return self._buffer

    # Rare

    def _rate(self, rates: Rates, grad: Tensor) -> None:
        """Tell the core what the optimizer goes by now; weight decay comes before the core's momentum."""
        if rates.moves_momentum and self.exchange.is_exchanged:
            raise BytePSError(
                f"backward: {self.name} is exchanged a second time before step(), and momentum in "
                "compression_params would be applied to it twice; set backward_passes_per_step to the "
                "number of backward passes in a step, or add up the losses"
            )
        self.declared.lr, self.declared.mu, decay = rates.of(self.parameter)
        if decay:
            grad.add_(self.parameter.detach(), alpha=decay)

    def _plain(self, grad: Tensor) -> Tensor:
        """A dense gradient without a graph. Rows of a sparse one that nobody used are sent as zeros."""
        if grad.requires_grad:  # the graph may have kept its memory, which results are not to change
            grad = grad.detach().clone()
        if grad.layout is not _STRIDED:
            if not self.exchange.warned_of_sparse:
                self.exchange.warned_of_sparse = True
                warnings.warn(
                    f"{self.name}: its gradient is sparse ({grad.layout}); it is converted to a dense one, "
                    "here and for every other sparse gradient",
                    stacklevel=2,
                )
            grad = grad.to_dense()
        self.parameter.grad = grad
        return grad

    def _leave_to_other(self) -> None:
        """Another exchange has pushed this gradient. Ours, in step(), will find the result."""
        if not self.exchange.warned_of_other:
            self.exchange.warned_of_other = True
            warnings.warn(
                f"{self.name}: the gradient is exchanged twice, here and by another DistributedOptimizer or "
                "DistributedDataParallel over the same parameter, as others may be; wrap a model once",
                stacklevel=2,
            )

    def _refuse_pass(self) -> None:
        raise BytePSError(
            f"backward: {self.name} was made again while it is on its way to the other ranks; if a backward "
            "pass raised before, call synchronize() after it; if a checkpoint with use_reentrant=True shares "
            "the parameter with another layer, use use_reentrant=False"
        )
