"""How contributions are combined, in Horovod's words: ``Average``, ``Sum``, ``Min`` and the like. Pure.

Sums and averages are push-pulls. The others are made by each rank of all contributions, which are gathered
for it (``byteps.plugin.gather``).
"""

from __future__ import annotations

import enum

from byteps.errors import ConfigError

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "ReduceOp", "Sum", "chosen"]


class ReduceOp(enum.Enum):
    """What ``op=`` takes. ``Adasum`` is known by name, and refused."""

    AVERAGE = "Average"
    SUM = "Sum"
    ADASUM = "Adasum"
    MIN = "Min"
    MAX = "Max"
    PRODUCT = "Product"

    @property
    def is_push_pull(self) -> bool:
        """True for those that a push-pull does, on the server and with one rounding."""
        return self in (ReduceOp.AVERAGE, ReduceOp.SUM)


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT


def chosen(verb: str, op: ReduceOp | None, average: bool | None = None) -> ReduceOp:
    """What ``op=`` and the older ``average=`` ask for; the average where neither is given.

    >>> chosen("allreduce", None, average=False)
    <ReduceOp.SUM: 'Sum'>
    """
    if op is not None and average is not None:
        raise ConfigError(f"{verb}: op={op!r} and average={average!r} say the same thing twice; keep op=")
    if op is None:
        return Average if average is None or average else Sum
    if not isinstance(op, ReduceOp):
        raise ConfigError(f"{verb}: op={op!r}, expected Average, Sum, Min, Max or Product")
    if op is Adasum:
        raise ConfigError(
            f"{verb}: op=Adasum is not there: it needs every pair of gradients, and a server adds them; use "
            "op=Average, with a learning rate that fits the number of ranks"
        )
    return op
