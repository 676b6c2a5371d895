"""The pure parts of ``bps bench local``: which ratios it reports, and which goals stand beside them."""

from __future__ import annotations

import argparse

import pytest

from byteps.tools import bench
from byteps.tools.bench.local_goals import GOALS, gradient_lines, row, size_lines, verdicts
from byteps.tools.bench.local_ranks import environment
from byteps.tools.bench.series import Series

MB = 1024**2


def _series(ranks: int, nbytes: int, **times_s: float) -> list[Series]:
    return [
        Series(peer, ranks, 0, nbytes, 1, samples_s=[time_s] * 3, samples_cpu_s=[time_s] * 3)
        for peer, time_s in times_s.items()
    ]


def test_ratios_and_their_goals() -> None:
    lines = size_lines(2, _series(2, 64 * MB, byteps=2.0, arena=1.0, gloo=7.0, bound=0.5))
    assert [row(line) for line in lines] == [
        ["64 MB, 2 ranks, plain tensors", "Gloo", "3.50 x", "3.50 to 3.50", "3 x", "pass"],
        ["64 MB, 2 ranks, in the arena", "Gloo", "7.00 x", "7.00 to 7.00", "5 x", "pass"],
        ["64 MB, 2 ranks, in the arena", "memory bound", "0.50 x", "0.50 to 0.50", "0.6 x", "FAIL"],
    ]
    assert [verdict.reached for verdict in verdicts(lines)] == [True, True, False]


def test_a_ratio_without_a_goal_is_shown_too() -> None:
    lines = size_lines(4, _series(4, 4096, byteps=1.0, gloo=2.0))
    assert [row(line)[2:] for line in lines] == [["2.00 x", "2.00 to 2.00", "", ""]]
    assert verdicts(lines) == []


def test_peers_that_were_not_measured_are_left_out() -> None:
    assert size_lines(2, _series(2, 4096, gloo=1.0, bound=1.0)) == []
    assert gradient_lines("resnet50", _series(2, 100, gloo=1.0)) == []


def test_more_than_the_memory_bound_is_not_believed() -> None:
    (line,) = size_lines(2, _series(2, 64 * MB, arena=1.0, bound=2.0))
    assert row(line)[-1] == "FAIL ?"


def test_gradients_have_a_goal_in_both_kinds_of_memory() -> None:
    lines = gradient_lines("resnet50", _series(2, 100, byteps=1.0, arena=0.5, gloo=2.9))
    assert [verdict.reached for verdict in verdicts(lines)] == [False, True]


def test_goals_are_for_sizes_that_are_measured_by_default() -> None:
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers(dest="command"))
    args = parser.parse_args(["bench", "local"])
    assert {key[3] for key in GOALS} <= set(args.sizes)
    assert {key[0] for key in GOALS} <= set(args.ranks)
    assert args.gradients == ["resnet50", "bert-base"]


@pytest.mark.parametrize("wrong", ["1", "0", "two"])
def test_fewer_than_two_ranks_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    bench.add_parser(parser.add_subparsers(dest="command"))
    with pytest.raises(SystemExit):
        parser.parse_args(["bench", "local", "--ranks", wrong])
    assert "expected" in capsys.readouterr().err


def test_rank_0_gets_the_socket_of_the_scheduler() -> None:
    first, second = (environment(rank, 2, 4711, "job", 9) for rank in (0, 1))
    assert first["BYTEPS_LISTEN_FD"] == "9" and "BYTEPS_LISTEN_FD" not in second
    assert (second["BYTEPS_LOCAL_RANK"], second["BYTEPS_LOCAL_SIZE"]) == ("1", "2")
