"""Which cores each rank gets, on recorded machines; every rule of the table in ``binding``."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import (
    ALL,
    EIGHT_SMALL,
    EPYC,
    EPYC_PAIR,
    EVEN_ODD,
    HALF_OFF,
    HYBRID,
    LAPTOP,
    MEMORY_LESS,
    TWO_CORES,
    XEON,
    Machine,
)

from byteps.config import load
from byteps.errors import ConfigError
from byteps.launcher.binding import Binding, apply, decide
from byteps.launcher.plan import UNKNOWN, Options, plan
from byteps.launcher.topology import cpu_text


@pytest.fixture
def choose(tmp_path: Path):
    def choose(
        machine: Machine, ranks: int, affinity: str | None = None, quota: str = "", **settings: object
    ) -> Binding:
        config = load({f"BYTEPS_{name}": str(value) for name, value in settings.items()})
        return decide(ranks, machine.topology(tmp_path, affinity, quota), config)

    return choose


def shown(binding: Binding) -> list[str]:
    return [cpu_text(place.cpus) for place in binding.places]


def memory(binding: Binding) -> list[int | None]:
    return [place.memory_node for place in binding.places]


def threads(binding: Binding) -> list[int]:
    return [place.threads for place in binding.places]


# ---- dealt over the machine


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 16, 33])
@pytest.mark.parametrize("name", ALL)
def test_no_processor_twice_and_none_that_is_not_ours(name: str, ranks: int, tmp_path: Path) -> None:
    topology = ALL[name].topology(tmp_path)
    for settings in ({}, {"BYTEPS_MULTITHREADED_CPU": "0"}, {"BYTEPS_NUMA_DEFAULT_QUOTA": "1"}):
        binding = decide(ranks, topology, load(settings))
        assert len(binding.places) == ranks and binding.reason
        assert all(place.threads >= 1 for place in binding.places)
        used = [cpu for place in binding.places for cpu in place.cpus]
        assert set(used) <= set(topology.cpus)
        own = {place.cpus for place in binding.places}
        if len(own) > 1 and "share" not in binding.reason:
            assert len(used) == len(set(used)) and all(own)
            assert all(place.memory_node in (*topology.memory_nodes, None) for place in binding.places)


def test_two_sockets(choose) -> None:
    assert shown(choose(XEON, 2)) == ["0-19,40-59", "20-39,60-79"]
    four = choose(XEON, 4)
    assert shown(four) == ["0-9,40-49", "10-19,50-59", "20-29,60-69", "30-39,70-79"]
    assert (memory(four), threads(four)) == ([0, 0, 1, 1], [10] * 4)
    assert shown(choose(XEON, 4, MULTITHREADED_CPU=0)) == ["0-9", "10-19", "20-29", "30-39"]


def test_a_rank_stays_in_one_node_even_if_shares_differ(choose) -> None:
    three = choose(XEON, 3)
    assert (memory(three), threads(three)) == ([0, 0, 1], [10, 10, 20])


def test_what_is_left_over_goes_to_the_root(choose) -> None:
    assert threads(choose(XEON, 6)) == [8, 6, 6, 7, 7, 6]
    assert shown(choose(EVEN_ODD, 2)) == ["0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"]


def test_four_and_eight_nodes(choose) -> None:
    assert memory(choose(EPYC, 8)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert memory(choose(EPYC_PAIR, 8)) == list(range(8))
    two = choose(EPYC_PAIR, 2)
    assert shown(two) == ["0-63,128-191", "64-127,192-255"] and memory(two) == [None, None]
    assert threads(choose(EPYC, 3)) == [32, 16, 16]  # fewer ranks than nodes: whole nodes
    assert threads(choose(EIGHT_SMALL, 16)) == [2] * 16


def test_uneven_nodes_get_ranks_by_their_cores(choose) -> None:
    binding = choose(XEON, 4, affinity="0-11,20-23")
    assert shown(binding) == ["0-3", "4-7", "8-11", "20-23"]


def test_cores_of_different_kinds_and_offline_threads(choose) -> None:
    assert shown(choose(HYBRID, 2)) == ["0-7", "8-11"]
    assert shown(choose(HALF_OFF, 2)) == ["0-1,4-5", "2,7"]


def test_memory_of_a_node_that_has_none_is_left_to_the_kernel(choose) -> None:
    assert memory(choose(MEMORY_LESS, 2)) == [0, None]


# ---- not enough cores


def test_one_core_each_is_not_bound(choose) -> None:
    binding = choose(TWO_CORES, 2)
    assert shown(binding) == ["", ""] and threads(binding) == [1, 1]
    assert binding.reason == "2 ranks, 2 cores; on one each, sending would wait for computing"
    assert shown(choose(LAPTOP, 4)) == [""] * 4


def test_one_core_each_on_several_nodes_shares_the_node(choose) -> None:
    binding = choose(EIGHT_SMALL, 32)
    assert shown(binding)[:5] == ["0-3", "0-3", "0-3", "0-3", "4-7"]
    assert memory(binding) == [node for node in range(8) for _ in range(4)] and threads(binding) == [1] * 32


def test_more_ranks_than_cores(choose) -> None:
    binding = choose(TWO_CORES, 8)
    assert shown(binding) == [""] * 8 and threads(binding) == [1] * 8
    assert binding.reason == "8 ranks, 2 cores"


def test_a_set_of_3_processors_and_the_time_of_3(choose) -> None:
    assert shown(choose(XEON, 2, affinity="0-2")) == ["", ""]
    limited = choose(XEON, 2, quota="300000 100000")
    assert shown(limited) == ["", ""] and threads(limited) == [1, 1]
    assert limited.reason.startswith("the control group allows the time of 3 of 80 processors")
    assert threads(choose(XEON, 1, quota="300000 100000")) == [3]


def test_one_rank_has_the_machine(choose) -> None:
    assert shown(choose(XEON, 1)) == [""] and threads(choose(XEON, 1)) == [40]


# ---- settings


def test_switched_off(choose) -> None:
    binding = choose(XEON, 2, NUMA_ON=0, CPU_BLACKLIST="0")
    assert shown(binding) == ["", ""] and threads(binding) == [20, 20]


def test_quotas(choose) -> None:
    binding = choose(XEON, 4, NUMA_DEFAULT_QUOTA=4)
    assert shown(binding) == ["0,5-19,40,45-59", "1-4,41-44", "20-23,60-63", "24-27,64-67"]
    both = choose(XEON, 2, NUMA_DEFAULT_QUOTA=2, NUMA_ROOT_QUOTA=3, MULTITHREADED_CPU=0)
    assert shown(both) == ["0-2", "20-21"]
    assert threads(choose(XEON, 5, NUMA_ROOT_QUOTA=8)) == [8, 8, 8, 8, 8]
    assert shown(choose(TWO_CORES, 2, NUMA_DEFAULT_QUOTA=1)) == ["0", "1"]  # who says so gets one each


def test_a_quota_larger_than_a_node_takes_several(choose) -> None:
    binding = choose(EIGHT_SMALL, 3, NUMA_DEFAULT_QUOTA=10, NUMA_ROOT_QUOTA=10)
    assert threads(binding) == [10, 10, 10]
    assert memory(binding) == [None, None, None]


def test_quotas_that_cannot_be_met_are_refused(choose) -> None:
    with pytest.raises(ConfigError, match=r"4 ranks need 41 cores .* 40 physical cores can be used"):
        choose(XEON, 4, NUMA_DEFAULT_QUOTA=10, NUMA_ROOT_QUOTA=11)


def test_blacklist(choose) -> None:
    assert shown(choose(XEON, 2, CPU_BLACKLIST="0-1,40-41")) == ["2-19,42-59", "20-39,60-79"]
    assert shown(choose(LAPTOP, 4, CPU_BLACKLIST="0")) == ["1-7"] * 4  # shared, but not that one
    with pytest.raises(ConfigError, match="BYTEPS_CPU_BLACKLIST leaves no core"):
        choose(TWO_CORES, 1, CPU_BLACKLIST="0-7")


def test_visible_cores(choose) -> None:
    binding = choose(XEON, 2, VISIBLE_CPU_CORES="1,4-5,7-11,12:20-25", NUMA_ON=0)
    assert shown(binding) == ["1,4-5,7-12", "20-25"]
    assert (memory(binding), threads(binding)) == ([0, 1], [9, 6])
    assert threads(choose(LAPTOP, 1, VISIBLE_CPU_CORES="0,4:1")) == [1]  # two threads of one core
    with pytest.raises(ConfigError, match=r"for 1 rank, but 2 are started here; separate .*0-3:4-7"):
        choose(XEON, 2, VISIBLE_CPU_CORES="0-3")
    with pytest.raises(ConfigError, match=r"gives core 80-81 to rank 1, but this process may use 0-79 only"):
        choose(XEON, 2, VISIBLE_CPU_CORES="0:79-81")


# ---- on a plan


def test_a_plan_with_places(tmp_path: Path) -> None:
    made = plan(Options(("train",), workers=2, servers=1), {}, UNKNOWN)
    topology = XEON.topology(tmp_path)
    specs, note = apply(made.processes, made.config, topology, {})
    assert [cpu_text(spec.cpus) for spec in specs] == ["", "", "0-19,40-59", "20-39,60-79"]
    assert [spec.env.get("OMP_NUM_THREADS") for spec in specs] == [None, None, "20", "20"]
    assert specs[2].env["BYTEPS_UNBOUND_CPUS"] == "0-79" and "BYTEPS_UNBOUND_CPUS" not in specs[0].env
    assert note == "ranks are bound to cores: 40 cores dealt over 2 ranks"
    specs, _ = apply(made.processes, made.config, topology, {"OMP_NUM_THREADS": "3"})
    assert all("OMP_NUM_THREADS" not in spec.env for spec in specs)


def test_a_job_of_one_is_left_alone(tmp_path: Path) -> None:
    made = plan(Options(("train",)), {}, UNKNOWN)
    (spec,), note = apply(made.processes, made.config, XEON.topology(tmp_path), {})
    assert spec.env == made.processes[0].env and spec.cpus == ()
    assert note == "no rank has cores of its own: one rank, which may use all cores"
