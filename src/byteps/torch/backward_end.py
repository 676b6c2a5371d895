"""The end of a backward pass, where every exchange that took part in it is completed.

``backward()`` returns when the callbacks that were queued on autograd's graph task have run; what they raise,
it raises. So gradients still travel while the backward pass runs, and whatever a script does to them
afterwards, it does to the result.

A task can run inside another one's node (checkpointing with ``use_reentrant=True`` calls ``backward()`` in a
backward pass). The end of the inner one is too early: the outer one's is taken. Where no gradient was made in
the outer one itself there is no callback on it; then gradients are completed by whoever touches them
(``in_flight``), or by ``step()``.

With several exchanges in one pass (two optimizers, two models), ranks may have met them in different orders,
and one must not wait for what another rank does only after it has waited for us. Therefore all of them tell
first, then all contribute, then all wait, in the order in which they were made.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from byteps.torch.gradients import GradientExchange

__all__ = ["complete_after"]


class _End:
    """What runs at the end of one graph task. The task owns it, and takes it along when it fails."""

    def __init__(self) -> None:
        self.exchanges: dict[GradientExchange, bool] = {}  # True: also at the end of an inner task

    def __call__(self) -> None:
        inner = torch._C._current_autograd_node() is not None
        ending: dict[GradientExchange, None] = {}
        for exchange, inner_too in self.exchanges.items():
            if inner and not inner_too:
                exchange.keep_local()
                _left_by_inner[exchange] = None
            else:
                ending[exchange] = None
        if not inner:
            ending |= _left_by_inner
            _left_by_inner.clear()
        due = sorted((each for each in ending if each.end_pass()), key=lambda each: each.number)
        for exchange in due:
            exchange.tell()
        for exchange in due:
            exchange.contribute()
        for exchange in due:
            if exchange.waits:
                exchange.finish()


_ends: weakref.WeakValueDictionary[int, _End] = weakref.WeakValueDictionary()
_left_by_inner: dict[GradientExchange, None] = {}


def complete_after(exchange: GradientExchange, task: int, inner_too: bool = False) -> None:
    """Complete ``exchange`` when this graph task, which is the current one, is over."""
    end = _ends.get(task)
    if end is None:
        end = _ends[task] = _End()
        torch.autograd.Variable._execution_engine.queue_callback(end)
    end.exchanges[exchange] = end.exchanges.get(exchange, False) or inner_too
