"""Who may spin: ranks that have a core each, whether they share all cores or are bound to a part."""

from __future__ import annotations

import pytest

from byteps.tensor.tuning import SPIN_NS
from byteps.worker.spinning import spin_ns


@pytest.mark.parametrize(
    ("ranks", "own_cores", "cores", "spins"),
    [
        (2, 2, 2, True),  # nobody is bound
        (2, 1, 2, True),  # each is bound to its half
        (8, 2, 16, True),
        (8, 2, 2, False),  # more ranks than cores
        (3, 2, 2, False),
        (4, 1, 2, False),  # bound, and not alone
        (2, 1, 1, False),
    ],
)
def test_only_ranks_with_a_core_each_spin(ranks: int, own_cores: int, cores: int, spins: bool) -> None:
    assert spin_ns(ranks, own_cores, cores) == (SPIN_NS if spins else 0)
