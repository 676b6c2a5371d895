"""Declarations: ids and places by name, conflicts that reach everybody, old generations that go away."""

from __future__ import annotations

import random
import re

import pytest

from byteps.control.messages import Assigned, BarrierDone, Member, Placed, TensorSpec
from byteps.errors import ProtocolError
from byteps.scheduler import declarations as limits
from byteps.scheduler.barriers import Barriers
from byteps.scheduler.declarations import Declarations
from byteps.scheduler.placement import Placement
from byteps.tensor import dtypes
from byteps.tensor.runs import count, stored

FLOAT32, FLOAT64 = dtypes.NUMBERS["float32"], dtypes.NUMBERS["float64"]


def workers(size: int) -> list[Member]:
    return [Member("worker", r, "abc"[r % 3], "10.0.0.1", 0, 0, r, 0, 1, 100 + r) for r in range(size)]


def declarations(size: int = 2, partition_bytes: int = 64) -> Declarations:
    return Declarations(workers(size), Placement([2, 2]), partition_bytes)


def spec(
    name: str = "x",
    shape: tuple[int, ...] = (4,),
    generation: int = 0,
    dtype: int = FLOAT32,
    codec: str = "",
) -> TensorSpec:
    return TensorSpec(name, generation, dtype, list(shape), codec)


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
        assert count(answers[0][s.name].placement) == -(-nbytes // 64)


def test_same_declaration_twice_gets_the_same_answer() -> None:
    table = declarations()
    assert table.declare(0, [spec()]).placed == table.declare(0, [spec(), spec()]).placed[1:]


def test_servers_are_told_of_a_tensor_once_and_never_of_one_without_bytes() -> None:
    table = declarations()
    (placed,) = table.declare(0, [spec(shape=(40,))]).placed
    first = declarations().declare(0, [spec(shape=(40,)), spec("empty", shape=(0,))])
    assert first.new == [Assigned(0, "x", FLOAT32, 160, "", placed.partition_bytes, placed.placement)]
    assert table.declare(1, [spec(shape=(40,))]).new == []


def test_a_server_that_cannot_hold_a_tensor_refuses_it_for_all() -> None:
    table = declarations()
    placed = table.declare(0, [spec(), spec("y")]).placed
    table.refuse(placed[0].tensor_id, "server 0 (host a) cannot hold it: no memory", lack=True)
    first, second = table.settled(placed)
    assert first.lack and first.error == (
        "tensor 'x', float32 [4]: server 0 (host a) cannot hold it: no memory"
    )
    assert second == placed[1]
    (later,) = table.declare(1, [spec()]).placed
    assert later == first
    refused = Placed(-1, [], "refused before")
    assert table.settled([refused]) == [refused]


def test_a_worker_without_memory_for_a_tensor_leaves_nobody_waiting_for_it() -> None:
    table = declarations()
    (placed,) = table.declare(0, [spec()]).placed
    assert table.lack(1, placed.tensor_id, "no memory") == []  # it has not declared it
    table.declare(1, [spec()])
    told = table.lack(1, placed.tensor_id, "no memory for 16 bytes")
    assert [rank for rank, _ in told] == [0, 1]
    for _, conflict in told:
        assert conflict.lack and conflict.tensor_id == placed.tensor_id
        assert re.fullmatch(
            r"tensor 'x', float32 \[4\]: worker 1 .*cannot hold it: no memory for 16 bytes", conflict.text
        )
    assert table.lack(0, placed.tensor_id, "none either") == []  # the first reason counts
    (later,) = table.declare(0, [spec()]).placed
    assert later.lack and later.error == told[0][1].text
    assert table.lack(0, 999, "unknown") == []


def test_empty_tensor_has_no_partitions() -> None:
    assert declarations().declare(0, [spec(shape=(0, 5))]).placed == [Placed(0, [], partition_bytes=64)]


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
        (TensorSpec("x\x1b[2J", 0, FLOAT32, [1]), "not printable"),
        (TensorSpec("", 0, FLOAT32, [1]), "not printable"),
    ],
)
def test_impossible_tensor_is_refused(bad: TensorSpec, word: str) -> None:
    placed = declarations().declare(1, [bad]).placed[0]
    assert placed.tensor_id == -1 and word in placed.error and "worker 1 (host b)" in placed.error


def test_terabytes_cost_the_scheduler_next_to_nothing() -> None:
    table = Declarations(workers(2), Placement([4] * 4), 4_096_000)
    for n in range(30):
        (placed,) = table.declare(0, [spec(f"{n}", (1 << 38,))]).placed
        assert not placed.error and count(placed.placement) == 268_436 and stored(placed.placement) < 100


def test_a_model_of_a_terabyte_is_declared_in_few_places() -> None:
    """Honest and large: 1,000 tensors of a gigabyte, with default partitions, over 16 servers."""
    table = Declarations(workers(1), Placement([4] * 16), 4_096_000)
    places = 0
    for first in range(0, 1_000, 100):  # as a worker would send them
        batch = [spec(f"layer.{n}", (1 << 28,)) for n in range(first, first + 100)]
        places += sum(stored(placed.placement) for placed in table.declare(0, batch).placed)
    assert places < 200_000


def test_a_message_that_would_keep_the_scheduler_busy_is_refused() -> None:
    table = Declarations(workers(1), Placement([1]), 64)
    assert table.declare(0, [spec("one", (1 << 22,))]).placed[0].tensor_id == 0
    with pytest.raises(ProtocolError, match="2 tensors with 524288 partitions"):
        table.declare(0, [spec("a", (1 << 22,)), spec("b", (1 << 22,))])
    assert table.declare(0, [TensorSpec("c", 0, 99, [1 << 40]), spec("d")]).placed[1].tensor_id == 1


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_NAMES", 100)
    table = declarations(1)
    for n in range(100):
        assert not table.declare(0, [spec(f"step.{n}")]).placed[0].error
    for n in range(100, 200):
        assert "changes from step to step" in table.declare(0, [spec(f"step.{n}")]).placed[0].error
    assert not table.declare(0, [spec("step.5"), spec("step.6", (9,), generation=1)]).placed[1].error
    assert len(table._newest) == 100  # what was refused leaves nothing


def test_characters_and_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_NAME_CHARACTERS", 10_000)
    table = declarations(1)
    errors = [table.declare(0, [spec(f"{n:04000}")]).placed[0].error for n in range(4)]
    assert [bool(error) for error in errors] == [False, False, True, True]
    monkeypatch.setattr(limits, "MAX_PLACES", 100)
    table = Declarations(workers(1), Placement([1] * 97), 64)
    placed = [table.declare(0, [spec(f"{n}", (16 * 60,))]).placed[0] for n in range(4)]
    assert [bool(one.error) for one in placed] == [False, False, True, True]
    assert "raise BYTEPS_PARTITION_BYTES" in placed[-1].error


def test_places_of_what_is_retired_are_free_again() -> None:
    table = Declarations(workers(1), Placement([1] * 97), 64)
    for generation, partitions in enumerate((60, 7, 500)):
        table.declare(0, [spec("x", (16 * partitions,), generation)])
    assert table._places == sum(len(places) for _, places in table._live["x"][2].runs) < 500


def test_no_servers_between_machines_is_an_error_and_no_crash() -> None:
    table = Declarations(workers(2), Placement([]), 64)
    assert "no servers" in table.declare(0, [spec()]).placed[0].error


def test_one_machine_needs_no_servers_and_no_places() -> None:
    ranks = [Member("worker", r, "a", "127.0.0.1", 0, 0, 0, r, 2, 100 + r) for r in range(2)]
    table = Declarations(ranks, Placement([]), 64)
    assert table.declare(0, [spec(shape=(1000,))]).placed == [Placed(0, [], partition_bytes=64)]
    assert table.declare(1, [spec(shape=(1000,)), spec("y")]).placed == [
        Placed(n, [], partition_bytes=64) for n in (0, 1)
    ]
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


def test_what_nobody_has_said_is_chosen_for_each_tensor() -> None:
    table = declarations(partition_bytes=0)
    plain, coded, small = table.declare(
        0, [spec("p", shape=(1 << 22,)), spec("c", shape=(1 << 22,), codec="onebit"), spec("s")]
    ).placed
    assert (plain.partition_bytes, coded.partition_bytes, small.partition_bytes) == (
        2 << 20,
        4_096_000,
        65_536,
    )
    assert [count(each.placement) for each in (plain, coded, small)] == [8, 5, 1]
