"""Names that only some ranks have declared: what is said of them, to whom it is a warning, and how often."""

from __future__ import annotations

import time

import pytest

from byteps.control.messages import Member, TensorSpec
from byteps.scheduler import declarations
from byteps.scheduler.declarations import Declarations
from byteps.scheduler.names import AFTER_S, Difference, Pace, Partial, difference
from byteps.scheduler.placement import Placement

LATER = AFTER_S + 1.0


def partial(name: str, *ranks: int, since: float = 0.0) -> Partial:
    return Partial(name, frozenset(ranks), since)


def said(*partials: Partial, size: int = 2, at_barrier: tuple[int, ...] = ()) -> Difference:
    return difference(LATER, partials, size, at_barrier)


def test_two_spellings_of_one_name() -> None:
    found = said(partial("fc1.weight", 0), partial("fc_1.weight", 1))
    assert found.crossed
    assert found.text == (
        "for 4 s only some ranks have declared these names: 'fc1.weight' only on worker 0, "
        "'fc_1.weight' only on worker 1; do all ranks run the same code and model?"
    )


def test_the_nearest_names_are_shown_together() -> None:
    here = [partial(name, 0) for name in ("module.conv.weight", "module.conv.bias", "module.head.weight")]
    there = [partial(name, 1) for name in ("conv.weight", "conv.bias", "head.weight")]
    text = said(*here, *there).text
    for name in ("conv.weight", "conv.bias", "head.weight"):
        assert f"'module.{name}' only on worker 0, '{name}' only on worker 1" in text


def test_names_without_a_pair_and_too_many_names() -> None:
    text = said(partial("scale", 0), partial("embedding.table", 1)).text
    assert "'scale' only on worker 0; 'embedding.table' only on worker 1;" in text
    text = said(*(partial(f"{k}.{'abcdefghij'[k] * 20}", 0) for k in range(9)), partial("x" * 3, 1)).text
    assert text.count("only on worker") == 5 and "and 5 more" in text


def test_many_ranks_are_named_by_the_few() -> None:
    text = said(partial("a", *range(7)), partial("b", 7), size=8).text
    assert "'a' on all but worker 7" in text and "'b' only on worker 7" in text
    text = said(partial("a", *range(0, 40, 2)), partial("b", *range(1, 40, 2)), size=40).text
    assert "'a' only on workers 0, 2, 4, 6, 8 and others" in text


def test_ranks_that_are_only_slower_are_no_warning() -> None:
    found = said(partial("a", 0, 1), partial("b", 0, 1), partial("c", 0), size=3)
    assert not found.crossed and found.text.endswith("perhaps the others are only slower")
    assert "'c' only on worker 0" in found.text


def test_one_that_waits_at_a_barrier_will_not_declare_it() -> None:
    found = said(partial("a", 0), at_barrier=(1,))
    assert found.crossed and "worker 1 waits at a barrier" in found.text
    assert not said(partial("a", 0), at_barrier=(0,)).crossed


def test_nothing_is_said_of_names_that_have_just_come() -> None:
    young = partial("fc_1", 1, since=LATER - 1)
    assert said(young) == Difference()
    assert not said(partial("fc1", 0), young).crossed  # the other half may follow at once


def test_names_from_the_order_of_calls_are_explained() -> None:
    text = said(partial("push_pull.noname.3", 0), partial("broadcast.noname.1", 1)).text
    assert "made from the order of calls without name=" in text


def test_thousands_of_long_names_do_not_hold_up_the_scheduler() -> None:
    here = [partial(f"{'block.' * 100}{k}.weight", 0) for k in range(3_000)]
    there = [partial(f"{'block.' * 100}{k}_weight", 1) for k in range(3_000)]
    began = time.process_time()
    found = said(*here, *there)
    assert time.process_time() - began < 2.0
    assert len(found.text) < 4_000 and "0.weight' only on worker 0, " in found.text


def test_the_pace_is_bounded() -> None:
    pace, times = Pace(), []
    while (now := pace.due_at(0.0, 0.0)) < 300.0:
        assert pace.is_news(now, Difference("text"))
        times.append(now)
    assert times == [3.0, 8.0, 18.0, 38.0, 78.0, 138.0, 198.0, 258.0]


def test_what_is_no_mere_slowness_is_said_as_soon_as_it_is_known() -> None:
    pace = Pace()
    assert pace.due_at(0.0, 1.5) == 3.0 and pace.is_news(3.0, Difference("slow"))
    assert pace.due_at(0.0, 1.5) == 4.0 and not pace.is_news(4.0, Difference("slow"))
    assert pace.due_at(0.0, 1.5) == 5.0 and pace.is_news(5.0, Difference("crossed", True))
    assert pace.due_at(0.0, 1.5) == 10.0  # everything was looked at: not before it is said again
    assert not pace.is_news(6.0, Difference("crossed, too", True))


# What declarations tell of it


def table(machines: tuple[int, ...] = (0, 1)) -> Declarations:
    workers = [
        Member("worker", rank, "h", "10.0.0.1", 0, 0, machine, 0, 1, rank)
        for rank, machine in enumerate(machines)
    ]
    return Declarations(workers, Placement([1]), 64)


def spec(name: str, shape: int = 4, generation: int = 0, direct: bool = False) -> TensorSpec:
    return TensorSpec(name, generation, 0, [shape], "", direct)


def test_a_name_is_partial_until_all_have_declared_it() -> None:
    declared = table()
    declared.declare(0, [spec("a"), spec("b")], 10.0)
    assert declared.partials() == [partial("a", 0, since=10.0), partial("b", 0, since=10.0)]
    declared.declare(1, [spec("a")], 11.0)
    assert declared.partials() == [partial("b", 0, since=10.0)] and declared.partial_since() == (10.0, 10.0)
    declared.declare(1, [spec("b")], 12.0)
    assert declared.partials() == [] and declared.partial_since() is None


def test_a_name_with_another_shape_is_partial_anew() -> None:
    declared = table()
    for rank in range(2):
        declared.declare(rank, [spec("a")], 1.0)
    declared.declare(0, [spec("a", 5, generation=1)], 2.0)
    (found,) = declared.partials()
    assert found.anew and "'a' with another shape only on worker 0" in difference(9.0, [found], 2).text
    declared.declare(1, [spec("a", 5, generation=1)], 3.0)
    assert declared.partials() == []


def test_conflicts_are_told_elsewhere() -> None:
    declared = table()
    declared.declare(0, [spec("a", 4)], 1.0)
    declared.declare(1, [spec("a", 5)], 2.0)
    assert declared.partials() == []


def test_one_rank_declares_for_its_machine_where_it_pushes_for_it() -> None:
    declared = table((0, 0, 1, 1))
    declared.declare(0, [spec("a", direct=True)], 1.0)
    assert declared.partials() == [partial("a", 0, 1, since=1.0)]
    declared.declare(2, [spec("a", direct=True)], 2.0)
    assert declared.partials() == []


def test_nothing_is_said_once_somebody_has_left() -> None:
    declared = table()
    declared.declare(0, [spec("a")], 1.0)
    declared.depart()
    declared.declare(0, [spec("b")], 2.0)
    assert declared.partials() == []


def test_not_all_of_very_many_names_are_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarations, "MAX_PARTIALS", 10)
    declared = table()
    declared.declare(0, [spec(f"{n}") for n in range(100)], 1.0)
    assert [each.name for each in declared.partials()] == [f"{n}" for n in range(10)]
    declared.declare(1, [spec(f"{n}") for n in range(95)], 1.0)
    assert [each.name for each in declared.partials()] == ["95", "96", "97", "98", "99"]
