"""What is read of recorded machines: cores, nodes, what is offline, not allowed or limited."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machines import EPYC_PAIR, HALF_OFF, HYBRID, LAPTOP, MEMORY_LESS, TWO_CORES, XEON

from byteps.launcher.topology import Core, Topology, cpu_list, cpu_text, read


def test_siblings_share_a_core(tmp_path: Path) -> None:
    found = LAPTOP.topology(tmp_path)
    assert [core.threads for core in found.cores] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert (found.cpus, found.quota_cpus, found.memory_nodes) == (tuple(range(8)), None, {0})


def test_cores_may_have_different_numbers_of_threads(tmp_path: Path) -> None:
    assert [len(core.threads) for core in HYBRID.topology(tmp_path).cores] == [2, 2, 2, 2, 1, 1, 1, 1]


def test_cores_are_ordered_by_node(tmp_path: Path) -> None:
    found = XEON.topology(tmp_path)
    assert [core.node for core in found.cores] == [0] * 20 + [1] * 20
    assert found.cores[20] == Core((20, 60), 1)
    assert {node: len(cores) for node, cores in found.nodes.items()} == {0: 20, 1: 20}


def test_eight_nodes(tmp_path: Path) -> None:
    found = EPYC_PAIR.topology(tmp_path)
    assert [len(cores) for cores in found.nodes.values()] == [16] * 8
    assert len(found.cpus) == 256 and found.memory_nodes == set(range(8))


def test_what_is_offline_or_not_allowed_is_not_there(tmp_path: Path) -> None:
    assert [core.threads for core in HALF_OFF.topology(tmp_path / "a").cores] == [(0, 4), (1, 5), (2,), (7,)]
    found = XEON.topology(tmp_path / "b", affinity="0-2")  # a control group of 3 processors
    assert [core.threads for core in found.cores] == [(0,), (1,), (2,)]
    assert set(found.nodes) == {0}


def test_nodes_without_memory_and_nodes_without_cores(tmp_path: Path) -> None:
    found = MEMORY_LESS.topology(tmp_path)
    assert (found.memory_nodes, set(found.nodes)) == ({0, 2}, {0, 1})


@pytest.mark.parametrize(
    ("text", "cpus"), [("300000 100000", 3.0), ("50000 100000", 0.5), ("max 100000", None)]
)
def test_limit_of_a_group_around_ours(text: str, cpus: float | None, tmp_path: Path) -> None:
    assert XEON.topology(tmp_path, quota=text).quota_cpus == cpus


@pytest.mark.parametrize("name", ["cpu", "cpu,cpuacct"])
def test_limit_of_version_1(name: str, tmp_path: Path) -> None:
    system = TWO_CORES.write(tmp_path / "sys")
    group = tmp_path / "cgroups" / name / "docker/abc"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("150000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cgroup").write_text(f"3:cpuset:/\n1:{name}:/docker/abc\n0::/\n")
    found = read(system, [0, 1], tmp_path / "cgroups", tmp_path / "cgroup")
    assert found.quota_cpus == 1.5
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    assert read(system, [0, 1], tmp_path / "cgroups", tmp_path / "cgroup").quota_cpus is None


def test_a_machine_that_tells_nothing_is_simple(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert read(nothing, [3, 1], nothing, nothing) == Topology((Core((1,)), Core((3,))))


def test_this_machine() -> None:
    assert set(read().cpus) == os.sched_getaffinity(0)


@pytest.mark.parametrize("text", ["", "0", "0-3", "0,2-3,7", "5-6,9"])
def test_lists_of_the_kernel_there_and_back(text: str) -> None:
    assert cpu_text(cpu_list(text)) == text


@pytest.mark.parametrize("text", ["x", "1-", "-1", "1;2", "0-9999999"])
def test_what_is_no_list(text: str) -> None:
    assert cpu_list(text) == []
