"""Gradients as they were at one moment, to see in ``step()`` whether somebody has changed them since."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from byteps.errors import BytePSError

if TYPE_CHECKING:
    from byteps.torch.gradient_slot import Slot

__all__ = ["HAS_MOMENTUM", "IN_STEP_ELSEWHERE", "NOT_EXCHANGED", "Watched"]

# Why a gradient must not be changed, and what to do.
NOT_EXCHANGED = (
    "was changed before it was exchanged: there were fewer backward passes than the {passes} of "
    "backward_passes_per_step, so that it was the gradient of this rank alone; call optimizer.synchronize() "
    "first, which exchanges it, and change the result"
)
IN_STEP_ELSEWHERE = (
    "was changed after backward(), but another rank has made no backward pass and exchanges in step(), where "
    "nobody can change its gradient: the ranks would step differently; call backward() on all ranks, or "
    "optimizer.synchronize() where there is none"
)
HAS_MOMENTUM = (
    "was changed after backward(), but with momentum in compression_params it has momentum and weight decay "
    "in it, and clipping or unscaling that gives other numbers than in one process; leave momentum to the "
    "optimizer, or call optimizer.synchronize() after backward() if that is what you want to change"
)


class Watched:
    """The gradients of ``slots``, now. ``why`` is one of the reasons above."""

    def __init__(self, slots: Iterable[Slot], why: str) -> None:
        self.why = why
        self._were = [
            (slot, grad, 0 if grad is None else grad._version)
            for slot, grad in ((slot, slot.parameter.grad) for slot in slots)
        ]

    def check(self, passes: int) -> None:
        """Raise BytePSError for the first that is another tensor now, or has another value."""
        for slot, was, version in self._were:
            grad = slot.parameter.grad
            if grad is not was or (grad is not None and grad._version != version):
                raise BytePSError(f"step: the gradient {slot.name} {self.why.format(passes=passes)}")
