"""Names of the operations of a process group: bounded, and made from the order of calls alone."""

from __future__ import annotations

import random

from byteps.torch.process_group.names import Names


def test_one_size_takes_turns() -> None:
    names = Names("g", turns=3)
    assert [names.next(0, 5) for _ in range(4)] == ["g.0.0", "g.0.1", "g.0.2", "g.0.0"]
    assert names.next(1, 5) == "g.1.0"  # another dtype
    assert names.next(0, 6) == "g.2.0"
    assert names.next(0, 5) == "g.0.1"


def test_the_size_not_used_for_longest_gives_its_place() -> None:
    names = Names("g", room=2, turns=1)
    assert [names.next(0, size) for size in (1, 2, 1, 3, 1, 2)] == [
        *("g.0.0", "g.1.0", "g.0.0"),
        "g.1.0",  # 3 takes the place of 2
        "g.0.0",
        "g.1.0",  # 2 takes it back
    ]


def test_ranks_that_call_in_one_order_agree(seed: int) -> None:
    ranks = [Names("g", room=5, turns=2) for _ in range(2)]
    chance = random.Random(seed)
    used = set()
    for _ in range(500):
        dtype, size = chance.randrange(2), chance.randrange(9)
        one, other = (names.next(dtype, size) for names in ranks)
        assert one == other
        used.add(one)
    assert len(used) == 5 * 2
