"""Whether the ranks of a machine may look for each other for a moment before they sleep; pure."""

from __future__ import annotations

from byteps.tensor.tuning import SPIN_NS

__all__ = ["spin_ns"]


def spin_ns(ranks: int, own_cores: int, cores: int) -> int:
    """How long a rank may spin when it waits for the others; 0 where they have no core each.

    ``own_cores`` are those that this process may run on: all that the ranks share, or, where each is bound to
    its part, a part of the ``cores`` of the machine.

    >>> spin_ns(2, 2, 2) == spin_ns(2, 1, 2) == SPIN_NS, spin_ns(8, 2, 2), spin_ns(4, 1, 2)
    (True, 0, 0)
    """
    apart = own_cores >= ranks or own_cores * ranks <= cores
    return SPIN_NS if apart else 0
