"""Which machine is which: not by host names, where there is anything better."""

from __future__ import annotations

from typing import Any

from byteps.control import machine
from byteps.control.machines import on_one_host
from byteps.control.messages import Machine, Member, View
from byteps.scheduler.shares import shares_of

HERE = Machine("boot-1", "net:[1]", "10.0.0.1")


def member(role: Any, rank: int, where: Machine, host: str = "clone") -> Member:
    return Member(role, rank, host, "", 0, 1, rank, 0, 1, 100 + rank, machine=where)


def test_another_kernel_network_or_address_is_another_machine() -> None:
    others = [
        Machine("boot-2", "net:[1]", "10.0.0.1"),
        Machine("boot-1", "net:[2]", "10.0.0.1"),
        Machine("boot-1", "net:[1]", "10.0.0.2"),
    ]
    for other in others:
        assert not on_one_host(View(0, 0, 2, [member("worker", 0, HERE), member("worker", 1, other)]))
    assert on_one_host(View(0, 0, 2, [member("worker", 0, HERE), member("worker", 1, HERE, "other-name")]))


def test_where_kernels_tell_nothing_host_names_do() -> None:
    silent = Machine(address="10.0.0.1")
    assert on_one_host(View(0, 0, 2, [member("worker", 0, silent), member("worker", 1, silent)]))
    assert not on_one_host(View(0, 0, 2, [member("worker", 0, silent), member("worker", 1, silent, "b")]))


def test_servers_of_clones_have_the_shares_of_machines_of_their_own() -> None:
    places = [Machine("boot-1", "net:[1]", f"10.0.0.{n}") for n in range(6)]
    members = [member("worker", n, places[n]) for n in range(4)]
    members += [member("server", n, places[n]) for n in range(6)]
    assert [str(share) for share in shares_of(View(0, 0, 4, members), False)] == ["1/10"] * 4 + ["3/10"] * 2


def test_this_machine_is_always_the_same() -> None:
    assert machine.own("10.0.0.1") == machine.own("10.0.0.1") != machine.own("10.0.0.2")
    assert machine.own("").kernel and machine.own("").network
