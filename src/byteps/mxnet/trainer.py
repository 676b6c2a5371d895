"""``DistributedTrainer``: a Gluon trainer that steps with the gradients of all ranks.

trainer = bps.DistributedTrainer(
    net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, compression_params={...}
)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mxnet as mx

from byteps.compress import parse
from byteps.errors import ConfigError
from byteps.mxnet.memory import item
from byteps.mxnet.momentum import Moved
from byteps.mxnet.ops import run_in_place
from byteps.mxnet.optimizer import DistributedOptimizer, refuse_async
from byteps.mxnet.parameters import broadcast_parameters
from byteps.plugin.group import Group

__all__ = ["DistributedTrainer"]


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """Averages gradients over all ranks before each step.

    ``step(batch_size)`` divides by the batch of this rank, and the average over ranks does the rest: the same
    as one process with the whole batch. Parameters start from those of ``root_rank``: now, or when their
    shapes are known, and once more at the first step. ``allreduce_grads()`` and ``update()`` work as in
    Gluon, to clip between them. With ``momentum`` in ``compression_params``, momentum and weight decay of SGD
    and NAG are applied before gradients are exchanged and not by the optimizer, with its numbers. Without
    decay that is NAG; with it MXNet's own differs a little from the rule, which is to add it to the gradient.
    All ranks must have the same parameters: DeclarationError names the first that differs.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Mapping[str, Any] | None = None,
        root_rank: int = 0,
        compression_params: Mapping[str, object] | None = None,
    ) -> None:
        refuse_async("DistributedTrainer")
        if isinstance(optimizer, DistributedOptimizer):
            raise ConfigError(
                "DistributedTrainer: it exchanges the gradients itself; pass the optimizer without "
                "DistributedOptimizer around it"
            )
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._root_rank = root_rank
        self._codec = compression_params
        self._moved = Moved(self._optimizer) if parse(compression_params).momentum else None
        self._group: Group | None = None
        self._exchange([])  # refuses parameters of compression that do not fit
        broadcast_parameters({each.name: each for each in self._params}, root_rank)

    def _init_params(self) -> None:
        """Called by the first step: only the root may have loaded a file since this trainer was made."""
        waiting: list[Any] = self._params_to_init  # type: ignore[has-type]
        known = [each for each in waiting if not each._deferred_init]
        broadcast_parameters({each.name: each for each in known}, self._root_rank)
        self._params_to_init = [each for each in waiting if each._deferred_init]

    def _allreduce_grads(self) -> None:
        trained = [each for each in self._params if each.grad_req != "null"]
        for each in trained:
            if len(each.list_ctx()) > 1:
                raise ConfigError(
                    f"step: {each.name} is on {len(each.list_ctx())} devices, expected one for each rank; "
                    "start one rank for each device"
                )
        gradients = [each.grad() for each in trained]
        if self._moved is not None:
            self._moved.prepare(trained)
        items = [
            item(value, "push_pull", f"Gradient.{each.name}")
            for each, value in zip(trained, gradients, strict=True)
        ]
        group = self._exchange(items)
        group.rate(float(self.learning_rate), None if self._moved is None else self._moved.momentum)
        run_in_place(group, gradients)

    def update(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """After ``allreduce_grads()``; refused where momentum is the core's, which needs the batch before."""
        if self._moved is not None:
            raise ConfigError(
                "update: with momentum in compression_params the gradients are scaled before they travel; "
                "call step(batch_size) instead of allreduce_grads() and update()"
            )
        super().update(batch_size, ignore_stale_grad)

    def _exchange(self, items: list[Any]) -> Group:
        if self._group is None or self._group.items != items:
            self._group = Group("push_pull", items, compression_params=self._codec, agree="gradients")
        return self._group
