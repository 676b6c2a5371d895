"""``DistributedDataParallel``: torch's class of that name, with push-pull under it.

How one step goes. ``forward`` leaves a mark on the graph, at the outputs. A backward pass meets the mark
before any parameter of the module: it lets the hooks of the ``GradientExchange`` push, and joins the end of
the pass, which waits for the results (``backward_end``). So it is the forward pass that decides whether its
gradients are averaged (``no_sync``), and a backward pass that stops before the parameters
(``torch.autograd.grad``) sends nothing. One through the same graph again adds to the average, and is averaged
in its turn.

It is the mark that joins and not only the first hook, because that one may run in a backward pass inside the
backward pass (gradient checkpointing), and the end of that one is too early.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from byteps.errors import ConfigError
from byteps.torch import backward_end
from byteps.torch.compression import Cast, Compression
from byteps.torch.gradients import GradientExchange
from byteps.torch.in_flight import inside_backward
from byteps.torch.parallel.arguments import check, device_of
from byteps.torch.parallel.buffers import ROOT_RANK, Buffers
from byteps.torch.parallel.nested import moved, tensors_in
from byteps.torch.parameters import broadcast_parameters
from byteps.worker import current

__all__ = ["DistributedDataParallel"]

_numbers = itertools.count()  # of instances in this process, the same on every rank


class DistributedDataParallel(nn.Module):
    """A module whose gradients are the average over all ranks when ``backward()`` returns.

        model = DistributedDataParallel(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for inputs, labels in batches:
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()

    Every rank starts from the parameters and buffers of rank 0. With ``broadcast_buffers`` it also takes
    rank 0's buffers before each forward pass in training mode; a forward pass for evaluation talks to nobody,
    so one rank may do that alone. All ranks wrap their models in the same order. A parameter that no rank
    used keeps its gradient as it was; one that some ranks used counts as zero on the others, without
    ``find_unused_parameters``. The arguments of torch's class are taken, and refused if they would matter and
    cannot be honoured. ``compression`` and ``compression_params`` are as for ``DistributedOptimizer``.

    After an exception in ``backward()`` on one rank alone, the next forward pass there ends the step that the
    other ranks wait for.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Sequence[int | torch.device] | None = None,
        output_device: int | torch.device | None = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        *,
        compression: Cast = Compression.none,
        compression_params: Mapping[str, object] | None = None,
        forward_sync_buffers: bool | None = None,
        **others: object,
    ) -> None:
        super().__init__()
        session = current.required("DistributedDataParallel")
        check(session, others, device_ids, process_group)
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ConfigError(
                "DistributedDataParallel: no parameter of module requires a gradient, so there is nothing "
                "to average; use the module itself"
            )
        self.module = module
        self.device_ids = list(device_ids) if device_ids else None
        self._device = device_of(self.device_ids)
        chosen = broadcast_buffers if broadcast_buffers is not None else forward_sync_buffers
        self.broadcast_buffers = True if chosen is None else chosen
        self.require_backward_grad_sync = True
        ignored = frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        prefix = f"DDP.{next(_numbers)}."
        named = [(name, each) for name, each in module.named_parameters() if name not in ignored]
        if init_sync:
            state = [*named, *((n, b) for n, b in module.named_buffers() if n not in ignored)]
            broadcast_parameters(state, ROOT_RANK, prefix=f"{prefix}Parameter.")
        self._buffers_of_module = Buffers(module, f"{prefix}Buffers", ignored)
        # None in a copy, as weight averaging makes them: it takes no part.
        self._exchange: GradientExchange | None = GradientExchange(
            named,
            compression=compression,
            compression_params=compression_params,
            prefix=f"{prefix}Gradient.",
        )
        self._exchange.paused = True  # until a backward pass meets a mark
        self._exchange.on_end = self._pause
        self._exchange.ends_step = True
        self._running = False  # a backward pass has met a mark, and is not over
        self._hides = False  # the module hides its tensors: there is nothing to put a mark on

    # torch.compile() stops here and goes on inside the module: what follows is not for graphs.
    @torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call,untyped-decorator]
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the module returns."""
        if not inside_backward():
            self.synchronize()  # the last backward pass may have raised, and other ranks wait for it
        sync = torch.is_grad_enabled() and self.require_backward_grad_sync and self._has_others()
        if sync and self.training and self.broadcast_buffers:
            self._buffers_of_module.broadcast()
        if self._device is not None:
            inputs, named = moved(inputs, self._device), moved(named, self._device)
        outputs = self.module(*inputs, **named)
        if torch.is_grad_enabled():
            self._mark(outputs, sync)
        return outputs

    def _has_others(self) -> bool:
        exchange, session = self._exchange, current.session
        if exchange is None or session is None:  # a copy, or after the end of the job
            return False
        if exchange.session is not session:  # after resume()
            exchange.bind()
        return not exchange.is_idle

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes inside stay with their rank; they are added to those of the next step.

        with model.no_sync():
            loss(model(first)).backward()
        loss(model(second)).backward()  # averages the sum of both
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def synchronize(self) -> None:
        """Wait for gradients that are on their way. ``backward()`` has done that, unless it raised."""
        exchange = self._exchange
        if exchange is None or not (self._running or exchange.is_open):
            return
        self._pause()
        exchange.synchronize()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_exchange": None, "_running": False}

    # A backward pass

    def _mark(self, outputs: object, sync: bool) -> None:
        nodes = {output.grad_fn: None for output in tensors_in(outputs) if output.grad_fn is not None}
        if not nodes:
            self._hides = True
        if self._hides and self._exchange is not None:  # then the last forward pass decides for all
            self._exchange.paused = not sync
        elif sync:
            for node in nodes:
                node.register_prehook(lambda gradients: self._begin())

    def _begin(self) -> None:
        if self._exchange is not None:
            self._running = True
            self._exchange.paused = False
            task = torch._C._current_graph_task_id()
            backward_end.complete_after(self._exchange, task, inner_too=True)

    def _pause(self) -> None:
        """A backward pass is over."""
        self._running = False
        if self._exchange is not None:
            self._exchange.paused = not self._hides
            self._exchange.is_exchanged = (
                False  # passes of no_sync() have left no sign: all that there is goes
            )
