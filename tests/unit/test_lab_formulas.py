"""The pure parts of ``benchmarks/lab``: formulas, plans, networks, scaling, goals and what is not told."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

import pytest

from byteps.tools.bench.lab_cluster import job_variables
from byteps.tools.bench.series import Series
from byteps.tools.bench.stats import Ratio
from byteps.tools.lab import Wire
from byteps.tools.lab.layout import Layout

FOLDER = Path(__file__).parents[2] / "benchmarks" / "lab"
sys.path.insert(0, str(FOLDER))
try:
    import common
    import formulas
    import networks
    import overlap
    import page
    import plans
    import scaled
    import scaling
    import step as training_step
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


def test_no_benchmark_of_a_lab_sets_what_users_do_not() -> None:
    """The default is the benchmark: only who is in the job is said."""
    for workers in (1, 4):
        said = job_variables(Layout(workers, 0, workers), "10.0.0.1")
        ours = {name for name in said if name.startswith("BYTEPS_")}
        forced = {"BYTEPS_FORCE_DISTRIBUTED"} if workers == 1 else set()
        assert ours == {"BYTEPS_JOB_ID", "BYTEPS_JOB_SECRET"} | forced
    sources = list(FOLDER.glob("*.py"))
    assert len(sources) > 10 and [path.name for path in sources if "BYTEPS_" in path.read_text()] == []


def plans_of(**given: object) -> list[plans.Plan]:
    nothing = dict.fromkeys(("cases", "rates", "loads", "mtu", "queues"))
    return theory.plans_of(Namespace(**{**nothing, "hostname": "", "tiny": False, **given}))


def test_what_is_measured_if_nothing_is_said() -> None:
    usual = plans_of()
    assert usual == plans.usual() and len(set(usual)) == len(usual)
    cases = {(str(plan.case), plan.rate_mbit) for plan in usual if plan.wire == common.ETHERNET}
    assert cases >= {(f"{n}+{k}", 100 if n == 8 else 200) for n in (2, 4, 8) for k in (0, n // 2, n)}
    grid = {(plan.wire.mtu, plan.wire.queue_ms) for plan in usual if str(plan.case) == "4+4"}
    assert grid == {(mtu, queue_ms) for mtu in (1500, 9000) for queue_ms in (10, 40, 100)}
    assert any(plan.wire.one_name for plan in usual)
    loads = {one.name for plan in usual for one in plan.loads}
    assert loads == {"1M", "16M", "64M", "resnet50", "bert-base"}


def test_the_usual_measurement_takes_minutes() -> None:
    """Of links alone, both peers, with the rounds that are not timed: at most ten minutes of twelve."""
    seconds, repeats = 0.0, 3
    for plan in plans.usual():
        for index, one in enumerate(plan.loads):
            rounds = (0 if index else 2) + repeats * (1 + one.inner)
            seconds += rounds * sum(each.notes["optimum_s"] for each in theory.entrants(plan, one, one.inner))
    assert 300 < seconds < 600


def test_everything_that_is_asked_for_in_all_combinations() -> None:
    cases, loads = [plans.Case(4, 4), plans.Case(8, 0)], [plans.load("64M"), plans.load("bert-base")]
    found = plans_of(cases=cases, loads=loads, mtu=[1500, 9000], queues=[10], hostname="clone")
    wires = [Wire(1500, 10, one_name="clone"), Wire(9000, 10, one_name="clone")]
    assert found == [
        plans.Plan(one, 100.0 if one.workers == 8 else 200.0, wire, tuple(loads))
        for one in cases
        for wire in wires
    ]
    (fast,) = plans_of(rates=[1000.0], cases=[plans.Case(4, 4)])
    assert fast == plans.Plan(plans.Case(4, 4), 1000.0, common.ETHERNET, (plans.USUAL_LOAD,))


@pytest.mark.parametrize("text", ["vgg16", "3", "0", "M"])
def test_a_load_that_is_none(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        plans.load(text)


def test_the_optimum_counts_the_headers_of_the_mtu() -> None:
    for mtu in (1500, 9000):
        plan = plans.Plan(plans.Case(4, 4), 200.0, Wire(mtu, 40), (plans.USUAL_LOAD,))
        ours, gloo = theory.entrants(plan, plans.USUAL_LOAD, 2)
        segments = plans.USUAL_LOAD.nbytes / (mtu - 52)
        assert ours.notes["optimum_s"] == pytest.approx(segments * (mtu + 14) * 8 / 200e6)
        assert gloo.notes["optimum_s"] == pytest.approx(1.5 * ours.notes["optimum_s"])


def test_gloo_gets_gradients_in_buckets() -> None:
    one = plans.load("resnet50")
    ours, gloo = one.tensors("byteps"), one.tensors("gloo")
    assert ours is not None and gloo is not None
    assert (len(ours), len(gloo), one.inner) == (161, 4, 1)
    assert plans.load("16M").tensors("byteps") is None and plans.load("16M").inner == 2


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
        return scaled.Scaled(layers, 1.0, 1.0, 25.0, rate_mbit=8)

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
    notes = {"load": "16M", "k": 4, "optimum_s": 1.0, "over_shares": {"w0": [1.01, 1.02]}}
    ours = Series("byteps", 4, 4, 16 << 20, 1, [1.03, 1.04, 1.04], notes=notes)
    gloo = Series("gloo", 4, 0, 16 << 20, 1, [1.5, 1.5, 1.5], notes={**notes, "optimum_s": 1.5})
    over, links, against = theory.verdicts_of("4+4", [ours, gloo])
    assert (over.actual, over.goal.target, over.reached, over.clear) == (1.04, 1.05, True, True)
    assert (links.actual, links.reached) == (1.02, True)
    assert against.actual == pytest.approx(1.5 / 1.04) and against.reached


def test_goals_depend_on_workers_and_small_tensors_have_only_gloo() -> None:
    notes = {"load": "16M", "k": 4, "optimum_s": 1.0}
    eight = Series("byteps", 8, 12, 16 << 20, 1, [1.08], notes=notes)
    (over,) = theory.verdicts_of("8+4", [eight])
    assert over.goal.target == 1.10 and over.reached
    small = [
        Series(peer, 4, 4, 1 << 20, 1, [took], notes=notes) for peer, took in (("byteps", 1.3), ("gloo", 1.5))
    ]
    (against,) = theory.verdicts_of("4+4", small)
    assert against.goal.target == 1.0 and against.reached


def test_processor_seconds_are_per_gb_of_all_workers() -> None:
    one = Series("byteps", 4, 4, 250_000_000, 1, [1.0], samples_cpu_s=[5.0], samples_server_cpu_s=[2.0])
    assert one.cpu_s_per_gb() == (3.0, 2.0)


@pytest.mark.parametrize(("workers", "goals"), [(4, 1), (2, 0)])
def test_goals_of_a_training_step(workers: int, goals: int) -> None:
    notes = {"case": "4+4", "rate_mbit": 200.0}
    series = [
        Series(peer, workers, workers, 100, 1, [took], notes=notes)
        for peer, took in (("ddp-gloo", 1.1), ("optimizer", 0.75))
    ]
    found = training_step.verdicts_of(series)
    assert len(found) == goals and all(verdict.reached for verdict in found)


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
    with pytest.raises(SystemExit, match="0 places for the table 'cases'"):
        page.fill("nothing", "cases", "the table")


def measured(peer: str, samples_s: list[float], optimum_s: float, **notes: object) -> dict[str, Any]:
    usual = {"case": "4+4", "k": 4, "rate_mbit": 200.0, "mtu": 1500, "queue_ms": 40, "one_name": ""}
    more = {"load": "16M", "kind": "cases", "over_shares": {"w0": [1.004, 1.006]}, "resent_per_round": 1.5}
    every = {**usual, **more, "cpu_s_per_gb": [3.0, 2.0], "optimum_s": optimum_s, **notes}
    return {"peer": peer, "workers": 4, "samples_s": samples_s, "notes": every}


def test_tables_are_formed_repetition_by_repetition() -> None:
    last = page.cases([measured("byteps", [1.0, 2.0], 1.0), measured("gloo", [1.5, 3.0], 1.5)]).splitlines()[
        -1
    ]
    ours = "1.5 s | 1.50 [1.25 to 1.75] | 1.006 | 1.5 | 3.0 + 2.0"
    assert last == f"| 4 | 4 | 200 Mbit/s | {ours} | 1.50 | 3.0 | 1.50 [1.50 to 1.50] times as fast | 1.50 |"


def test_other_links_stand_beside_the_usual_ones_and_no_series_is_no_table() -> None:
    pair = [measured("byteps", [1.0], 1.0), measured("gloo", [1.5], 1.5)]
    assert page.wires(pair) == page.loads(pair) == ""
    notes = {"mtu": 9000, "queue_ms": 10, "one_name": "clone", "kind": "wires"}
    other = [measured("byteps", [1.1], 1.0, **notes), measured("gloo", [1.5], 1.5, **notes)]
    first, second = page.wires([*pair, *other]).splitlines()[-2:]
    assert first.startswith("| 4+4 | 1500 | 40 ms | 16M | 1 s") and second.startswith(
        "| 4+4 | 9000 | 10 ms, one name"
    )
    assert len(page.cases([*pair, *other]).splitlines()) == 3


def test_what_it_was_and_what_it_is() -> None:
    sums = [
        measured("byteps", [took], 1.0, mtu=mtu, queue_ms=queue_ms)
        for mtu, queue_ms, took in ((1500, 10, 1.04), (1500, 100, 1.06), (9000, 40, 1.02))
    ]
    sums += [measured("byteps", [1.03], 1.0, one_name="any")]
    sums += [measured(peer, [took], 1.0, load="1M") for peer, took in (("byteps", 0.05), ("gloo", 0.064))]
    sums += [measured(peer, [9.0], 1.0, load="1M", case="2+2") for peer in ("byteps", "gloo")]  # another job
    steps = [measured(peer, [took], 0.7) for peer, took in (("ddp-gloo", 1.1), ("optimizer", 0.75))]
    found = {what: now for what, _, now in page.was.rows(sums, steps)}
    assert found == {
        "4+4, 16 MB, MTU 9000": "1.02",
        "4+4, 16 MB, MTU 1500": "1.04 to 1.06",
        "4+4, 16 MB, one host name": "1.03",
        "4+2, 16 MB, MTU 9000": "not measured",
        "4+4, one tensor of 1 MB": "50 ms (Gloo 64 ms)",
        "4+4, a step of training, 16.8 MB": "750 ms (DDP 1.1 s)",
    }


def test_a_check_that_it_runs_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = [{"workers": n, "samples_s": [1.0], "notes": {"optimum_s": 1.0}} for n in (1, 2)]
    (tmp_path / "page.md").write_text(PAGE.read_text())
    argv = ["page.py", "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    monkeypatch.setattr(sys, "argv", argv)
    for tiny in (True, False):
        result = {"settings": {"tiny": tiny}, "series": series, "written": "today"}
        (tmp_path / "lab-scaling.json").write_text(json.dumps(result))
        assert page.main() == 0
        assert ((tmp_path / "page.md").read_text() == PAGE.read_text()) == tiny


def test_parts_measured_apart_are_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, sizes in (("first", (1, 2)), ("second", (2, 4))):
        series = [{"workers": n, "samples_s": [float(n)], "notes": {"optimum_s": 1.0}} for n in sizes]
        series[0]["samples_s"] = [1.0 if folder == "first" else 1.5]  # 2 was measured again
        (tmp_path / folder).mkdir()
        result = {"settings": {}, "series": series, "written": "today"}
        (tmp_path / folder / "lab-scaling.json").write_text(json.dumps(result))
    (tmp_path / "page.md").write_text(PAGE.read_text())
    folders = [str(tmp_path / folder) for folder in ("first", "second", "missing")]
    monkeypatch.setattr(sys, "argv", ["page.py", "--results", *folders, "--page", str(tmp_path / "page.md")])
    assert page.main() == 0
    rows = [line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("| ")]
    start = rows.index("| workers = servers | time | of the time of one | of the optimum |")
    assert rows[start + 1 : start + 4] == [
        "| 1 | 1 s |  | 1.00 |",
        "| 2 | 1.5 s | 1.50 [1.50 to 1.50] | 1.50 |",
        "| 4 | 4 s | 4.00 [4.00 to 4.00] | 4.00 |",
    ]


def test_the_page_tells_no_difference_within_the_spread() -> None:
    series = [
        {"workers": workers, "samples_s": samples, "notes": {"optimum_s": 1.0}}
        for workers, samples in ((1, [1.0, 1.0, 1.0]), (2, [1.01, 0.99, 1.03]), (4, [1.05, 1.05, 1.06]))
    ]
    two, four = page.scaling(series).splitlines()[-2:]
    assert two == "| 2 | 1.01 s | no difference [1.00 to 1.02] | 1.01 |"
    assert four == "| 4 | 1.05 s | 1.05 [1.05 to 1.06] | 1.05 |"
