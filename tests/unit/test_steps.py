"""Who ends a step."""

from __future__ import annotations

from byteps.worker.steps import PATIENCE, Steps


class Optimizer:
    pass


def test_the_first_who_marks_counts() -> None:
    seen: list[int] = []
    steps = Steps(seen.append)
    generator, discriminator = Optimizer(), Optimizer()
    for _ in range(3):
        steps.mark(generator)
        steps.mark(discriminator)
    assert seen == [1, 2, 3]
    assert steps.number == 3


def test_after_its_end_another_one_counts() -> None:
    seen: list[int] = []
    steps = Steps(seen.append)
    first, second = Optimizer(), Optimizer()
    steps.mark(first)
    del first
    steps.mark(second)
    assert seen == [1, 2]


def test_what_the_script_says_is_the_last_word() -> None:
    seen: list[int] = []
    steps = Steps(seen.append)
    optimizer = Optimizer()
    steps.mark(optimizer)
    steps.mark_by_script()
    steps.mark(optimizer)
    steps.mark_by_script()
    assert seen == [1, 2, 3]


def test_one_that_has_stopped_is_succeeded_though_it_exists() -> None:
    seen: list[int] = []
    steps = Steps(seen.append)
    old, new = Optimizer(), Optimizer()
    steps.mark(old)
    for _ in range(PATIENCE):
        steps.mark(new)
    assert seen == [1]
    for _ in range(3):
        steps.mark(new)
    assert seen == [1, 2, 3, 4]


def test_what_is_made_anew_in_every_step_is_known_by_its_name() -> None:
    seen: list[int] = []
    steps = Steps(seen.append)
    for _ in range(3):
        steps.mark("generator")
        steps.mark("discriminator")
    assert seen == [1, 2, 3]
