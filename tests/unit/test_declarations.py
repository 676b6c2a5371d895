"""Declarations: ids and places by name, conflicts that reach everybody, old generations that go away."""

from __future__ import annotations

import random

import pytest

from byteps import dtypes
from byteps.control.messages import BarrierDone, Member, Placed, TensorSpec
from byteps.scheduler.barriers import Barriers
from byteps.scheduler.declarations import Declarations
from byteps.scheduler.placement import Placement

FLOAT32, FLOAT64 = dtypes.NUMBERS["float32"], dtypes.NUMBERS["float64"]


def workers(size: int) -> list[Member]:
    return [Member("worker", r, "abc"[r % 3], "10.0.0.1", 0, 0, r, 0, 1, 100 + r) for r in range(size)]


def declarations(size: int = 2, partition_bytes: int = 64) -> Declarations:
    return Declarations(workers(size), Placement([2, 2]), partition_bytes)


def spec(
    name: str = "x", shape: tuple[int, ...] = (4,), generation: int = 0, dtype: int = FLOAT32
) -> TensorSpec:
    return TensorSpec(name, generation, dtype, list(shape))


def test_order_of_declaration_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    table = declarations(3)
    specs = [spec(f"layer.{n}", (n + 1, 8)) for n in range(50)]
    answers: list[dict[str, Placed]] = []
    for rank in range(3):
        mine = specs.copy()
        rng.shuffle(mine)
        outcome = table.declare(rank, mine)
        assert not outcome.conflicts and not outcome.retired
        answers.append({s.name: placed for s, placed in zip(mine, outcome.placed, strict=True)})
    assert answers[0] == answers[1] == answers[2]
    assert sorted(placed.tensor_id for placed in answers[0].values()) == list(range(50))
    for s in specs:
        nbytes = dtypes.nbytes(s.dtype, tuple(s.shape))
        assert len(answers[0][s.name].placement) == -(-nbytes // 64)


def test_same_declaration_twice_gets_the_same_answer() -> None:
    table = declarations()
    assert table.declare(0, [spec()]).placed == table.declare(0, [spec(), spec()]).placed[1:]


def test_empty_tensor_has_no_partitions() -> None:
    assert declarations().declare(0, [spec(shape=(0, 5))]).placed == [Placed(0, [])]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (spec(shape=(2, 2)), ["float32 [4]", "float32 [2, 2]"]),
        (spec(dtype=FLOAT64), ["float32 [4]", "float64 [4]"]),
        (TensorSpec("x", 0, FLOAT32, [4], "onebit"), ["float32 [4]", "float32 [4] with codec 'onebit'"]),
        (TensorSpec("x", 0, 99, [4]), ["dtype 99"]),
    ],
)
def test_conflict_names_tensor_workers_and_both_declarations(other: TensorSpec, words: list[str]) -> None:
    table = declarations(3)
    table.declare(0, [spec()])
    outcome = table.declare(1, [other])
    text = outcome.placed[0].error
    for word in ["'x'", "worker 0 (host a)", "worker 1 (host b)", *words]:
        assert word in text
    assert [rank for rank, _ in outcome.conflicts] == [0, 1]
    assert {(c.name, c.generation, c.text, c.tensor_id) for _, c in outcome.conflicts} == {("x", 0, text, 0)}


def test_conflict_reaches_those_that_declare_later_and_nobody_twice() -> None:
    table = declarations(4)
    table.declare(0, [spec()])
    table.declare(1, [spec()])
    assert [rank for rank, _ in table.declare(2, [spec(shape=(5,))]).conflicts] == [0, 1, 2]
    late = table.declare(3, [spec()])
    assert [rank for rank, _ in late.conflicts] == [3] and late.placed[0].error


def test_conflict_spares_the_others_of_the_batch() -> None:
    table = declarations()
    table.declare(0, [spec("a"), spec("b")])
    placed = table.declare(1, [spec("a", (9,)), spec("b")]).placed
    assert [bool(one.error) for one in placed] == [True, False]


def test_generation_is_retired_when_all_have_a_newer_one() -> None:
    table = declarations(2)
    for rank in range(2):
        table.declare(rank, [spec()])
    assert table.declare(0, [spec(shape=(8,), generation=1)]).retired == []
    outcome = table.declare(1, [spec(shape=(8,), generation=1)])
    assert outcome.retired == [0] and outcome.placed[0].tensor_id == 1
    assert "retired" in table.declare(0, [spec()]).placed[0].error


def test_retired_bytes_no_longer_count() -> None:
    placement = Placement([1, 1])
    table = Declarations(workers(1), placement, 1 << 20)
    table.declare(0, [spec(shape=(1000,)), spec("y", (10,))])
    assert placement.loads == [[4000], [40]]
    table.declare(0, [spec(shape=(1,), generation=1)])
    assert placement.loads == [[0], [44]]


def test_slow_rank_may_still_declare_what_a_fast_one_has_left_behind() -> None:
    table = declarations(2)
    table.declare(0, [spec()])
    table.declare(0, [spec(shape=(8,), generation=1)])
    outcome = table.declare(1, [spec()])
    assert outcome.placed[0].tensor_id == 0 and not outcome.placed[0].error and not outcome.retired
    assert table.declare(1, [spec(shape=(8,), generation=1)]).retired == [0]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (TensorSpec("x", 0, 8, [1]), "dtype number 8"),
        (TensorSpec("x", 0, FLOAT32, [1 << 48, 1 << 48]), "split it"),
        (TensorSpec("x", 0, FLOAT32, [1 << 36]), "raise BYTEPS_PARTITION_BYTES"),
    ],
)
def test_impossible_tensor_is_refused(bad: TensorSpec, word: str) -> None:
    placed = declarations().declare(1, [bad]).placed[0]
    assert placed.tensor_id == -1 and word in placed.error and "worker 1 (host b)" in placed.error


def test_no_servers_between_machines_is_an_error_and_no_crash() -> None:
    table = Declarations(workers(2), Placement([]), 64)
    assert "no servers" in table.declare(0, [spec()]).placed[0].error


def test_one_machine_needs_no_servers_and_no_places() -> None:
    ranks = [Member("worker", r, "a", "127.0.0.1", 0, 0, 0, r, 2, 100 + r) for r in range(2)]
    table = Declarations(ranks, Placement([]), 64)
    assert table.declare(0, [spec(shape=(1000,))]).placed == [Placed(0, [])]
    assert table.declare(1, [spec(shape=(1000,)), spec("y")]).placed == [Placed(0, []), Placed(1, [])]
    assert "ranks disagree" in table.declare(0, [spec("y", (5,))]).placed[0].error
    table.declare(0, [spec(shape=(8,), generation=1)])
    assert table.declare(1, [spec(shape=(8,), generation=1)]).retired == [0]


def test_ranks_agree_on_whether_a_tensor_goes_to_the_servers_directly() -> None:
    table = declarations(3)
    direct = TensorSpec("x", 0, FLOAT32, [4], direct=True)
    assert not table.declare(0, [direct]).placed[0].error
    assert not table.declare(2, [direct]).placed[0].error  # rank 1 may never declare it
    error = table.declare(1, [spec()]).placed[0].error
    assert "declared float32 [4] without its machine" in error and "declared float32 [4];" in error


def test_what_one_rank_pushes_for_its_machine_is_retired_when_one_of_each_machine_has_a_newer_one() -> None:
    ranks = [Member("worker", r, "ab"[r // 2], "10.0.0.1", 0, 0, r // 2, r % 2, 2, 100 + r) for r in range(4)]
    table = Declarations(ranks, Placement([1]), 64)
    old = TensorSpec("x.rail.1", 0, FLOAT32, [4], direct=True)
    new = TensorSpec("x.rail.1", 1, FLOAT32, [8], direct=True)
    table.declare(1, [old])
    assert table.declare(1, [new]).retired == []
    assert table.declare(3, [new]).retired == [0]  # it was refused when it declared the whole before


# Barriers


def test_barrier_opens_for_the_last_one() -> None:
    barriers = Barriers(workers(3))
    assert barriers.arrive(0, 10) == [] and barriers.arrive(2, 30) == []
    assert barriers.missing() == "barrier waits for worker 1 (host b)"
    done = [(0, BarrierDone(10)), (1, BarrierDone(20)), (2, BarrierDone(30))]
    assert sorted(barriers.arrive(1, 20)) == done
    assert barriers.missing() == "" and barriers.waiting() == []


def test_barriers_of_two_threads_open_one_by_one() -> None:
    barriers = Barriers(workers(2))
    assert barriers.arrive(0, 1) == barriers.arrive(0, 2) == []
    assert barriers.arrive(1, 7) == [(0, BarrierDone(1)), (1, BarrierDone(7))]
    assert barriers.arrive(1, 8) == [(0, BarrierDone(2)), (1, BarrierDone(8))]


def test_barrier_without_one_that_left_is_answered_by_name() -> None:
    everybody = workers(3)
    barriers = Barriers(everybody)
    barriers.arrive(0, 1)
    assert barriers.depart(1) == [(0, BarrierDone(1, everybody[1]))]
    assert barriers.arrive(2, 5) == [(2, BarrierDone(5, everybody[1]))]
