"""The pure parts of ``bps bench``: medians, ratios, goals, units, exact sums, shapes of the bound."""

from __future__ import annotations

import argparse
import importlib.util

import numpy as np
import pytest

from byteps.tools import bench
from byteps.tools.bench import exact, push_pull_many
from byteps.tools.bench.bound import FINALISTS, IN_FLIGHT_BYTES, Shape, candidates, shortlist
from byteps.tools.bench.push_pull_memory import growth
from byteps.tools.bench.push_pull_sizes import settle
from byteps.tools.bench.series import Series, ratio_of, rounds_per_sample
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge, orders, quantile, speed_ratio, summarize
from byteps.tools.units import format_bytes, format_count, format_time, parse_bytes

MB = 1024**2


def test_quantiles_agree_with_numpy(rng: np.random.Generator) -> None:
    for count in (1, 2, 3, 10, 31):
        samples = rng.random(count).tolist()
        for fraction in (0.0, 0.25, 0.5, 0.75, 1.0):
            assert quantile(samples, fraction) == pytest.approx(np.quantile(samples, fraction))
    with pytest.raises(ValueError, match="no samples"):
        quantile([], 0.5)


def test_summary_of_samples() -> None:
    summary = summarize([5.0, 1.0, 4.0, 2.0, 3.0])
    assert (summary.count, summary.low, summary.q1, summary.median, summary.q3, summary.high) == (
        5,
        1,
        2,
        3,
        4,
        5,
    )


def test_a_ratio_is_formed_repetition_by_repetition() -> None:
    # A burst of noise that slows both sides of one repetition leaves the ratio of that pair alone.
    ratio = speed_ratio(ours_s=[1.0, 1.0, 9.0], theirs_s=[2.0, 2.0, 18.0])
    assert ratio == Ratio(value=2.0, q1=2.0, q3=2.0)
    with pytest.raises(ValueError, match="got 1 and 2"):
        speed_ratio([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("value", "q1", "q3", "reached", "clear"),
    [(0.93, 0.91, 0.95, True, True), (0.93, 0.88, 0.95, True, False), (0.85, 0.8, 0.89, False, True)],
)
def test_verdicts(value: float, q1: float, q3: float, reached: bool, clear: bool) -> None:
    verdict = judge(Goal("64 MB", "{:.2f} of the bound", 0.9), Ratio(value, q1, q3))
    assert (verdict.reached, verdict.clear) == (reached, clear)
    assert verdict.line().startswith(f"64 MB: {value:.2f} of the bound (goal 0.9): ")
    assert ("not reached" in verdict.line()) is not reached
    assert ("within the noise" in verdict.line()) is not clear


def test_a_goal_may_be_a_limit_and_may_be_unmeasured() -> None:
    limit = Goal("server memory", "{:.0f} MB", 600, at_most=True)
    assert Verdict(limit, 599).reached
    assert not Verdict(limit, 601).reached
    assert Verdict(limit, 601).line() == "server memory: 601 MB (goal at most 600): not reached"
    assert not judge(limit, None).reached
    assert "not measured" in judge(limit, None).line()


def test_every_repetition_measures_every_peer_in_changing_order() -> None:
    peers = ["byteps", "gloo", "bound"]
    plan = orders(peers, 60)
    assert len(plan) == 60
    assert all(sorted(order) == sorted(peers) for order in plan)
    assert {order[0] for order in plan} == set(peers)
    assert plan == orders(peers, 60)  # the same every time


def test_units() -> None:
    assert [parse_bytes(text) for text in ("4096", "4K", "64 KB", "1MiB", "2g")] == [
        4096,
        4096,
        65536,
        MB,
        2 << 30,
    ]
    for text in ("", "4X", "-1", "1.5M"):
        with pytest.raises(ValueError, match="size in bytes"):
            parse_bytes(text)
    assert [format_bytes(size) for size in (12, 4096, 64 * MB)] == ["12 B", "4 KB", "64 MB"]
    assert [format_time(value) for value in (2.5, 0.0612, 42e-6)] == ["2.5 s", "61.2 ms", "42.0 us"]
    assert format_count(1, "worker") == "1 worker"


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize(("count", "most"), [(70_001, 2), (9, 200)])
def test_exact_sums_hold_over_as_many_rounds_as_fit(workers: int, count: int, most: int) -> None:
    rounds = min(exact.rounds_that_fit(workers), most)
    parts = [np.empty(count, np.float32) for _ in range(workers)]
    for rank, part in enumerate(parts):
        exact.fill(part, rank)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    for _ in range(rounds - 1):
        total = np.sum([total] * workers, axis=0, dtype=np.float32)
    assert np.isfinite(total).all()
    exact.check(total, workers, rounds)


def test_exact_check_sees_a_missing_or_doubled_worker_and_one_wrong_element() -> None:
    parts = [np.empty(100_000, np.float32) for _ in range(2)]
    for rank, part in enumerate(parts):
        exact.fill(part, rank)
    good = parts[0] + parts[1]
    exact.check(good, workers=2, rounds=1)
    for wrong in (parts[0], parts[0] + parts[0], good + parts[1]):
        with pytest.raises(ValueError, match="wrong sum after 1 rounds of 2 workers at element 0"):
            exact.check(wrong, workers=2, rounds=1)
    good[99_999] = np.nextafter(good[99_999], np.float32(1))
    with pytest.raises(ValueError, match="at element 99999"):
        exact.check(good, workers=2, rounds=1)


@pytest.mark.parametrize("workers", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("nbytes", [4, 4096, MB, 64 * MB])
def test_a_sample_has_rounds_that_stay_finite(workers: int, nbytes: int) -> None:
    assert 1 <= rounds_per_sample(nbytes, workers) < exact.rounds_that_fit(workers)


@pytest.mark.parametrize("nbytes", [4, 4096, 65536, 65540, MB, 64 * MB])
def test_candidate_shapes_cannot_block_each_other(nbytes: int) -> None:
    shapes = candidates(nbytes, streams=2)
    assert shapes
    assert len(set(shapes)) == len(shapes)
    assert all(shape.window * shape.chunk_bytes <= IN_FLIGHT_BYTES for shape in shapes)
    assert all(shape.chunk_bytes % 4 == 0 and shape.streams in (1, 2) for shape in shapes)


def test_the_fastest_shapes_go_on_and_everything_tried_is_kept() -> None:
    shapes = candidates(64 * MB, streams=2)
    best = shapes[7]
    finalists, times = shortlist(shapes, lambda shape: 1.0 if shape == best else 2.0)
    assert finalists[0] == best
    assert len(finalists) == FINALISTS
    assert set(times) == set(shapes)
    assert len(times[best]) == 3
    assert shortlist(shapes[:1], lambda shape: pytest.fail("nothing to choose"))[0] == shapes[:1]


def test_the_bound_is_the_shape_with_the_best_median_over_all_repetitions() -> None:
    ours = Series("byteps", 2, 1, 4096, 1, [3.0, 3.0, 3.0])
    lucky = Series("bound", 2, 1, 4096, 1, [1.0, 9.0, 9.0], notes={"window": 1})
    steady = Series("bound", 2, 1, 4096, 1, [2.0, 2.0, 2.0], notes={"window": 2})
    assert settle([ours, lucky, steady]) == ([ours, steady], [lucky])
    assert settle([ours]) == ([ours], [])


def test_faster_than_the_bound_is_not_believed() -> None:
    goal = Goal("64 MB", "{:.2f} of the bound", 0.9, ceiling=1.0)
    flattering = judge(goal, Ratio(1.13, 1.01, 1.31))
    assert not flattering.reached
    assert not flattering.clear
    assert "not believed" in flattering.line()
    assert judge(goal, Ratio(1.01, 0.95, 1.08)).reached  # within the spread of an equal speed


def test_shapes_are_parsed() -> None:
    assert Shape.parse("1x65536x2") == Shape(1, 65536, 2)
    for text in ("1x65536", "axbxc", "0x65536x1", "1x3x1", "1x262144x100"):
        with pytest.raises(ValueError):
            Shape.parse(text)


def test_growth_is_that_of_the_second_half() -> None:
    filling = [{"VmRSS": 10}] * 10 + [{"VmRSS": 30}] * 20
    assert growth(filling + [{"VmRSS": 50}] * 70) == 0
    assert growth(filling + [{"VmRSS": 50}] * 60 + [{"VmRSS": 57}] * 10) == 7
    assert growth([{"VmRSS": 3 * i} for i in range(100)]) == 3 * 50  # a leak
    assert growth([{"VmRSS": 5}]) == 0


def test_ratio_is_only_given_when_both_were_measured() -> None:
    ours = Series("byteps", 2, 1, 4096, 1, [1.0])
    bound = Series("bound", 2, 1, 4096, 1, [0.5])
    assert ratio_of([ours, bound], "bound", workers=2, nbytes=4096) == Ratio(0.5, 0.5, 0.5)
    assert ratio_of([ours, bound], "gloo") is None
    assert ratio_of([ours, bound], "bound", workers=1) is None


def _parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers())
    return parser.parse_args(["bench", "push-pull", *arguments])


def test_defaults_are_those_of_the_goals() -> None:
    args = _parse()
    assert args.sizes == [4096, 65536, MB, 16 * MB, 64 * MB]
    assert (args.workers, args.servers, args.peers) == ([1, 2], [1], ["byteps", "gloo", "bound"])
    assert (args.tensors, args.rounds, args.check) == (1000, 10_000, False)


@pytest.mark.parametrize(
    "arguments",
    [["--sizes", "5"], ["--sizes", "0"], ["--workers", "0"], ["--peers", "mpi"], ["--repeats", "x"]],
)
def test_wrong_options_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(*arguments)
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize(("actual", "status"), [(11.0, 0), (9.0, 1), (None, 1)])
def test_a_missed_goal_is_a_failure_only_with_check(
    actual: float | None, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the benchmark needs PyTorch")
    verdict = Verdict(Goal("1,000 tensors", "{:.1f} times as fast as Gloo", 10), actual)
    monkeypatch.setattr(push_pull_many, "run", lambda options: [verdict])
    assert bench.run(_parse("--many")) == 0
    assert bench.run(_parse("--many", "--check")) == status
    assert verdict.line() in capsys.readouterr().out
