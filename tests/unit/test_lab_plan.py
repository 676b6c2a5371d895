"""The pure half of the lab: what is built, what is refused, where processes go."""

from __future__ import annotations

import argparse

import pytest

from byteps.errors import ConfigError
from byteps.launcher.plan import Options, plan
from byteps.launcher.spec import UNKNOWN
from byteps.tools.lab import plan as lab_plan
from byteps.tools.lab.layout import Layout, placed
from byteps.tools.lab.plan import Host, Traffic
from byteps.tools.lab.run import milliseconds, rate


def test_a_link_is_limited_in_both_directions_and_has_room_to_wait() -> None:
    assert lab_plan.shaping("p3", 1000) == [
        "qdisc add dev p3 root tbf rate 1000000000bit burst 125000 limit 1250000"
    ]
    assert lab_plan.shaping("p3", 0) == []
    assert lab_plan.queue_bytes(100) == 512 * 1024


def test_a_delayed_link_has_two_parts() -> None:
    direct = lab_plan.switch_links([11, 12], 9000, delayed=False)
    assert "link add p1 mtu 9000 type veth peer name eth0 mtu 9000 netns 12" in direct
    delayed = lab_plan.switch_links([11, 12], 9000, delayed=True)
    assert "link add h1 mtu 9000 type veth peer name eth0 mtu 9000 netns 12" in delayed
    assert "link add p1 mtu 9000 type veth peer name q1 mtu 9000" in delayed
    assert all("master br0" not in line or line.startswith("link set p") for line in direct + delayed)


@pytest.mark.parametrize(
    ("hosts", "rate_mbit", "said"),
    [
        ([], 100, "1 to 250 hosts"),
        ([Host("a"), Host("a")], 100, "different names"),
        ([Host("a")], 20_000, "host a: a link of 20000 Mbit/s"),
        ([Host("a", 0.5)], 100, "host a: a link of 0.5 Mbit/s"),
    ],
)
def test_what_cannot_be_built_is_refused(hosts: list[Host], rate_mbit: float, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        lab_plan.check(hosts, rate_mbit)


def test_processes_of_a_job_go_to_their_hosts() -> None:
    layout = Layout(workers=2, beside=1, extra=1)
    assert [host.name for host in layout.hosts] == ["scheduler", "w0", "w1", "s0"]
    job = plan(Options(("train",), workers=2, servers=2, nproc=2), {}, UNKNOWN).processes
    found = placed(job, layout, lambda host: f"address of {host}", lambda host: ["on", host])
    where = {spec.label: spec.argv[1] for spec in found}
    assert where == {
        "scheduler": "scheduler",
        "server 0": "w0",
        "server 1": "s0",
        "worker 0": "w0",
        "worker 1": "w0",
        "worker 2": "w1",
        "worker 3": "w1",
    }
    for spec in found:
        assert spec.env["DMLC_PS_ROOT_URI"] == "address of scheduler"
        assert "BYTEPS_LISTEN_FD" not in spec.env and not spec.fds
        assert spec.env.get("MASTER_ADDR") == ("address of w0" if spec.role == "worker" else None)


def test_traffic_between_two_moments() -> None:
    assert Traffic(10, 7) - Traffic(4, 5) == Traffic(6, 2)


def test_rates_and_delays() -> None:
    assert (rate("100mbit"), rate("2.5Gbit"), rate("500kbit"), rate("0")) == (100, 2500, 0.5, 0)
    assert milliseconds("0.5ms") == 0.5
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number with kbit, mbit or gbit"):
        rate("100")
