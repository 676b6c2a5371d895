"""``DistributedOptimizer``: an MXNet optimizer that updates with the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mxnet as mx

from byteps.errors import ConfigError
from byteps.mxnet.memory import item
from byteps.mxnet.ops import run_in_place
from byteps.plugin.group import Group
from byteps.worker import current

__all__ = ["DistributedOptimizer", "refuse_async"]

_ALL = 1 << 30


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """Wraps an optimizer: every ``update`` averages its gradients over all ranks first.

        module.init_optimizer(kvstore=None, optimizer=bps.DistributedOptimizer(optimizer))

    MXNet hands it all gradients of a step at once, so they travel together. Everything else, the learning
    rate as well as the state, is that of the optimizer inside.
    """

    def __init__(self, optimizer: Any, compression_params: Mapping[str, object] | None = None) -> None:
        refuse_async("DistributedOptimizer")
        if isinstance(optimizer, DistributedOptimizer):
            raise ConfigError("DistributedOptimizer: this optimizer is one already; wrap an optimizer once")
        groups: dict[tuple[Any, ...], Group] = {}
        self.__dict__.update(_optimizer=optimizer, _compression_params=compression_params, _groups=groups)
        Group("push_pull", [], compression_params=compression_params)  # refuses what does not fit

    # What MXNet asks: as many gradients at once as there are.
    aggregate_num = _ALL

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)  # rescale_grad, param_dict: what a trainer sets

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """One step for one weight, or for lists of them."""
        self._exchange(index, grad)
        self._each(self._optimizer.update, index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """The same for weights in float16 whose state is in float32."""
        self._exchange(index, grad)
        self._each(self._optimizer.update_multi_precision, index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        return self._optimizer.create_state_multi_precision(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        self._optimizer.set_learning_rate(lr)

    @property
    def learning_rate(self) -> Any:
        return self._optimizer.learning_rate

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        self._optimizer.set_wd_mult(args_wd_mult)

    def _set_current_context(self, device_id: int) -> None:
        self._optimizer._set_current_context(device_id)

    def _exchange(self, index: Any, grad: Any) -> None:
        indices = list(index) if isinstance(index, (list, tuple)) else [index]
        grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        items = [item(one, "push_pull", f"Gradient.{each}") for each, one in zip(indices, grads, strict=True)]
        group = self._groups.get(tuple(items))
        if group is None:
            group = Group("push_pull", items, compression_params=self._compression_params, agree="gradients")
            self._groups[tuple(items)] = group
        run_in_place(group, grads)

    def _each(self, update: Any, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """As many at once as the optimizer inside takes."""
        if not isinstance(index, (list, tuple)):
            update(index, weight, grad, state)
            return
        room = getattr(self._optimizer, "aggregate_num", 0)
        columns: tuple[Sequence[Any], ...] = (index, weight, grad, state)
        if room > 0:
            for start in range(0, len(index), room):
                update(*(list(column[start : start + room]) for column in columns))
        else:
            for row in zip(*columns, strict=True):
                update(*row)


def refuse_async(operation: str) -> None:
    """Say that asynchronous training needs another plugin."""
    if current.required(operation).config.enable_async:
        raise ConfigError(
            f"{operation}: BYTEPS_ENABLE_ASYNC=1 is for byteps.torch in this version; unset it everywhere"
        )
