"""The pure parts of ``benchmarks/lab``: formulas, networks, scaling, goals and what is not told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from byteps.tools.bench.series import Series
from byteps.tools.bench.stats import Ratio

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "lab"))
try:
    import common
    import formulas
    import networks
    import overlap
    import page
    import scaled
    import scaling
    import theory
finally:
    sys.path.pop(0)


@pytest.mark.parametrize(
    ("n", "k", "times"), [(4, 4, 1.5), (8, 8, 1.75), (4, 0, 1.0), (2, 0, 1.0), (8, 0, 1.0)]
)
def test_theory_against_a_ring(n: int, k: int, times: float) -> None:
    assert formulas.ring_s(n, 1000, 1) / formulas.optimum_s(n, k, 1000, 1) == pytest.approx(times)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_optimum_is_the_time_of_the_fullest_link(n: int) -> None:
    for k in (0, n // 2, n):
        carried = formulas.link_bytes(formulas.layout_of(n, k), 10**6)
        assert max(carried.values()) * 8 / 1e6 == pytest.approx(formulas.optimum_s(n, k, 10**6, 1))
        assert min(carried.values()) == pytest.approx(max(carried.values()))  # no link is idle


# Parameters in millions, and multiplications of a forward pass in thousands of millions, as published.
@pytest.mark.parametrize(
    ("name", "millions", "gmac"),
    [("vgg16", 138.358, 15.47), ("alexnet", 61.101, 0.714), ("resnet50", 25.557, 4.09)],
)
def test_networks_have_the_published_sizes(name: str, millions: float, gmac: float) -> None:
    network = networks.NETWORKS[name]()
    assert network.nbytes / 4e6 == pytest.approx(millions, abs=0.001)
    assert sum(layer.flops for layer in network.layers) / 2e9 == pytest.approx(gmac, rel=0.01)


def test_bert_large() -> None:
    assert networks.bert_large().nbytes / 4e6 == pytest.approx(335.14, abs=0.01)


def test_scaling_keeps_the_ratio_of_computing_to_communication() -> None:
    network = networks.vgg16()
    for gbit in (1, 10):
        step = scaled.scaled(network, 8 << 20, gbit * 1000, 200)
        real = network.compute_s / (network.nbytes * 8 / (gbit * 1e9))
        assert step.compute_s / step.communication_s == pytest.approx(real, rel=1e-3)


def test_the_ideal_of_one_layer_overlaps_nothing_and_of_many_nearly_all() -> None:
    def step(layers: list[tuple[list[int], float, float]]) -> scaled.Scaled:
        return scaled.Scaled(layers, 1.0, 1.0, 25.0, 4096, rate_mbit=8)

    alone = step([([250_000], 0.25, 0.75)])  # a megabyte: a second on this link
    assert scaled.ideal_s(alone) == pytest.approx(2.0, rel=1e-3)
    many = step([([2_500], 0.0025, 0.0075)] * 100)
    assert scaled.ideal_s(many) == pytest.approx(many.bound_s, rel=0.05)


def test_no_difference_is_told_within_the_spread() -> None:
    assert common.told(Ratio(1.05, 0.98, 1.2)) == "no difference [0.98 to 1.20]"
    assert common.told(Ratio(1.05, 1.02, 1.2)) == "no difference [1.02 to 1.20]"  # all faster, by how much?
    assert common.told(Ratio(1.05, 1.03, 1.08)) == "1.05 [1.03 to 1.08] x"
    assert common.told(Ratio(0.9, 0.9, 0.9), "{} as fast") == "0.90 [0.90 to 0.90] as fast"
    assert common.told(None) == ""


def test_goals_of_a_case() -> None:
    notes = {"case": "n = 4, k = 4", "k": 4, "optimum_s": 1.0, "over_shares": {"w0": [1.01, 1.02]}}
    ours = Series("byteps", 4, 4, 100, 1, [1.05, 1.06, 1.07], notes=notes)
    gloo = Series("gloo", 4, 0, 100, 1, [1.5, 1.5, 1.5], notes={**notes, "optimum_s": 1.5})
    over, links, against = theory.verdicts_of([ours, gloo])
    assert (over.actual, over.reached, over.clear) == (1.06, True, True)
    assert (links.actual, links.reached) == (1.02, True)
    assert against.actual == pytest.approx(1.5 / 1.06) and against.reached


def test_goals_of_a_step() -> None:
    notes = {"network": "vgg16", "gbit": 10, "bound_s": 1.0, "ideal_s": 1.01}
    ours = Series("cross-barrier", 4, 4, 100, 1, [1.2, 1.2], notes=notes)
    theirs = Series("ddp-gloo", 4, 4, 100, 1, [1.9, 1.9], notes=notes)
    faster, bound = overlap.verdicts_of([theirs, ours])
    assert faster.reached and not bound.reached
    assert "ideal 1.010" in bound.line()
    beside = [
        Series(peer, 4, 0, 100, 1, [took], notes=notes)
        for peer, took in (("ddp-gloo", 1.1), (ours.peer, 1.0))
    ]
    assert overlap.verdicts_of(beside)[0].reached  # a ring carries no more


def test_goals_of_scaling_are_relative_to_the_fewest_workers() -> None:
    series = [Series("byteps", n, n, 100, 1, [1.0 * (1 + n / 100)] * 3) for n in (1, 8)]
    (verdict,) = scaling.verdicts_of(series)
    assert verdict.actual == pytest.approx(1.08 / 1.01) and verdict.reached


PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


@pytest.mark.parametrize("name", page.TABLES)
def test_the_page_has_one_place_for_every_table(name: str) -> None:
    filled = page.fill(PAGE.read_text(), name, "the table")
    assert filled.count("the table\n\n<!-- end -->") == 1


def test_a_table_without_a_place_is_an_error_that_names_it() -> None:
    with pytest.raises(SystemExit, match="0 places for the table 'theory'"):
        page.fill("nothing", "theory", "the table")


def test_tables_are_formed_repetition_by_repetition() -> None:
    notes = {"case": "n = 4, k = 4", "k": 4, "rate_mbit": 200.0, "over_shares": {"w0": [1.004, 1.006]}}
    ours = {"peer": "byteps", "workers": 4, "samples_s": [1.0, 2.0], "notes": {**notes, "optimum_s": 1.0}}
    gloo = {"peer": "gloo", "workers": 4, "samples_s": [1.5, 3.0], "notes": {**notes, "optimum_s": 1.5}}
    last = page.theory([ours, gloo]).splitlines()[-1]
    beside = "1.50 [1.50 to 1.50] times as fast"
    assert last == f"| 4 | 4 | 200 Mbit/s | 1.5 s | 1.50 [1.25 to 1.75] | 1.006 | {beside} | 1.50 |"


def test_the_page_tells_no_difference_within_the_spread() -> None:
    series = [
        {"workers": workers, "samples_s": samples, "notes": {"optimum_s": 1.0}}
        for workers, samples in ((1, [1.0, 1.0, 1.0]), (2, [1.01, 0.99, 1.03]), (4, [1.05, 1.05, 1.06]))
    ]
    two, four = page.scaling(series).splitlines()[-2:]
    assert two == "| 2 | 1.01 s | no difference [1.00 to 1.02] | 1.01 |"
    assert four == "| 4 | 1.05 s | 1.05 [1.05 to 1.06] | 1.05 |"
