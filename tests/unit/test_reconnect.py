"""When a broken connection is tried again, and which connection's end is news."""

from __future__ import annotations

import itertools

import pytest

from byteps.server.connections import Connections
from byteps.worker.reconnect import FIRST_ATTEMPT_S, attempts


@pytest.mark.parametrize("limit_s", [0.2, 1.0, 3.0, 10.0, 60.0])
def test_attempts_follow_each_other_and_end_in_time(limit_s: float) -> None:
    planned = attempts(limit_s)
    assert planned[0] == (0.0, min(FIRST_ATTEMPT_S, limit_s))
    for (begin_s, length_s), (next_s, _) in itertools.pairwise(planned):
        assert begin_s + length_s < next_s
    assert all(begin_s + length_s <= limit_s + 1e-2 for begin_s, length_s in planned)
    assert planned[-1][0] + planned[-1][1] > limit_s - 1.1  # the pause before a last one


def test_a_link_that_is_back_after_three_seconds_is_used_soon() -> None:
    # TCP asks at the beginning of an attempt, and again after 1 and 3 s if the attempt lasts as long.
    asked = [
        begin_s + wait_s for begin_s, length_s in attempts(10.0) for wait_s in (0, 1, 3) if wait_s < length_s
    ]
    assert any(3.0 <= moment_s <= 4.0 for moment_s in asked), asked


def test_the_end_of_a_connection_that_has_a_successor_is_no_news() -> None:
    known = Connections()
    first, other = known.add(3, 0), known.add(3, 1)
    assert (3, 0) in known and (2, 0) not in known
    second = known.add(3, 0)
    assert known.ended(first) is None and (3, 0) in known
    assert known.ended(second) == (3, 0) and (3, 0) not in known
    assert known.ended(second) is None
    assert known.ended(0) is None  # it is about no connection
    known.clear()
    assert known.ended(other) is None and known.add(3, 1) != other
