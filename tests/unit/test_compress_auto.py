"""The decision of ``auto`` on signals that were recorded: 64 MB between 2 workers and a server."""

from __future__ import annotations

import bisect
import itertools
import random

from byteps.compress.auto import EXPLORE, GAIN, OFF, TRIAL_STEPS, Choice, Figures, Limits, Signals, decide

NBYTES = 64_000_000
# Errors are those of normal noise. Of `bps bench compress` and benchmarks/compress_links.py on one machine.
FIGURES = {
    OFF: Figures(1.0),
    "fp16": Figures(0.5, 25.1e9, 33.9e9, 0.0002),
    "int8": Figures(1 / 3.9, 17.3e9, 33.4e9, 0.0098),
    "onebit": Figures(1 / 32, 9.8e9, 37.2e9, 0.603),
    "topk": Figures(1 / 735, 11.8e9, 67.9e9, 0.994),
}
# push_pull as recorded there for links of 1 Gbit/s and for TCP on loopback, and 20 ms of computing.
GIGABIT = {OFF: 1.191, "fp16": 0.691, "int8": 0.368, "onebit": 0.064, "topk": 0.036}
LOOPBACK = {OFF: 0.053, "fp16": 0.0521, "int8": 0.0443, "onebit": 0.0383, "topk": 0.0333}
# Not recorded: the codecs take the cores that the training needs, and every step with one is longer.
NO_CORES = {OFF: 0.053, "fp16": 0.055, "int8": 0.056, "onebit": 0.057, "topk": 0.066}


def run(
    recorded: dict[str, float],
    link: float,
    steps: int,
    limits: Limits | None = None,
    seed: int = 0,
    choice: Choice | None = None,
) -> tuple[Choice, list[str]]:
    """Play so many steps; what was in use in each of them."""
    rng = random.Random(seed)
    choice, used = choice or Choice(), []
    seen: dict[str, list[float]] = {}
    for step in range(1, steps + 1):
        used.append(choice.in_use)
        took = recorded[choice.in_use] * rng.uniform(0.99, 1.01)
        bisect.insort(seen.setdefault(choice.in_use, []), took)
        medians = {codec: times[len(times) // 2] for codec, times in seen.items()}
        signals = Signals(step, NBYTES, link, 0.0, 0.5, FIGURES, medians)
        choice, reason = decide(choice, signals, limits or Limits())
        assert reason
    return choice, used


def test_it_ends_with_the_shortest_step() -> None:
    for recorded, link in ((GIGABIT, 125e6), (LOOPBACK, 1.9e9)):
        choice, used = run(recorded, link, 2000)
        assert choice.codec == "topk"
        assert used[0] == OFF and used[2 * TRIAL_STEPS + 1 :] == ["topk"] * (2000 - 2 * TRIAL_STEPS - 1)


def test_where_codecs_cost_more_than_they_gain_it_stays_off() -> None:
    choice, used = run(NO_CORES, 4e9, 2000)
    assert choice.codec == OFF
    assert used.count(OFF) >= (1 - EXPLORE) * len(used)


def test_tries_take_at_most_their_share_of_the_steps() -> None:
    """Of all steps up to any, those that were not with what held before."""
    for seed in range(5):
        for recorded, link in ((GIGABIT, 125e6), (LOOPBACK, 1.9e9), (NO_CORES, 125e6)):
            choice, used = run(recorded, link, 3000, seed=seed)
            assert choice.explored <= EXPLORE * len(used)
            tries = sum(1 for a, b in itertools.pairwise(used) if a != b)
            assert tries <= 2 * choice.explored / TRIAL_STEPS


def test_a_bound_of_error_and_a_set_are_kept() -> None:
    choice, used = run(GIGABIT, 125e6, 3000, Limits(max_error=0.01))
    assert choice.codec == "int8" and set(used) <= {OFF, "fp16", "int8"}
    choice, used = run(GIGABIT, 125e6, 3000, Limits(allow=frozenset({"fp16"})))
    assert choice.codec == "fp16" and set(used) == {OFF, "fp16"}
    choice, used = run(GIGABIT, 125e6, 3000, Limits(allow=frozenset()))
    assert set(used) == {OFF}


def test_a_codec_whose_error_grows_too_large_is_left_at_once() -> None:
    figures = {**FIGURES, "int8": Figures(0.26, error=float("nan"))}
    signals = Signals(500, NBYTES, 125e6, 0.0, 0.5, figures, GIGABIT)
    choice, reason = decide(Choice("int8"), signals, Limits(max_error=0.1))
    assert choice.codec == OFF and "error of nan" in reason
    trying, _ = decide(Choice("fp16", "int8", 503, 5), signals, Limits(max_error=0.1))
    assert trying.in_use == "fp16"


def test_what_was_tried_in_vain_waits_for_another_link() -> None:
    choice, _ = run(NO_CORES, 125e6, 4000)  # predictions say a lot, steps show nothing
    assert choice.codec == OFF and choice.in_vain
    again, used = run(NO_CORES, 125e6, 4000, choice=choice)
    assert set(used) == {OFF} and again.in_vain == choice.in_vain
    _, used = run(GIGABIT, 60e6, 4000, choice=Choice(in_vain=choice.in_vain))
    assert used[-1] == "topk"


def test_noise_does_not_switch() -> None:
    """Two codecs whose steps differ by less than the gain that a switch needs."""
    equal = {codec: 0.1 * (1 - GAIN / 2 * (codec == "int8")) for codec in FIGURES}
    for seed in range(10):
        choice, used = run(equal, 125e6, 3000, seed=seed)
        assert choice.codec == OFF, used


def test_slack_and_load() -> None:
    """A tensor that nobody waits for is not compressed; where the training needs the cores, less is."""
    idle = Signals(5000, NBYTES, 125e6, 1.0, 0.5, FIGURES, {OFF: 1.0})
    assert decide(Choice(), idle, Limits())[0] == Choice()
    busy = idle._replace(slack_s=0.5, link_bytes_per_s=1.25e9, load=1.0)
    assert decide(Choice(), busy, Limits())[0] == Choice()
