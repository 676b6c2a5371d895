"""Shares from speeds, against a linear program and against the shares of links that are all alike."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from byteps.control import messages
from byteps.control.messages import Member, Role, View
from byteps.scheduler.placement import Placement
from byteps.scheduler.shares import machine_shares, shares_of, why_not_by_speed
from byteps.scheduler.speeds import Machine, least_time, shares_by_speed

ONE = Fraction(1)


def drawn(seed: int) -> list[Machine]:
    """Some machines with a worker, some with a server, some with both; speeds from 1 to 1,000."""
    draw = random.Random(seed)
    made = [(True, draw.random() < 0.6) for _ in range(draw.randint(1, 9))]
    made += [(False, True) for _ in range(draw.randint(0, 9))]
    if not any(server for _, server in made):
        made.append((False, True))
    draw.shuffle(made)
    return [Machine(*kind, *(Fraction(draw.randint(1, 1000)) for _ in range(2))) for kind in made]


def link_times(machines: list[Machine], shares: list[Fraction]) -> list[Fraction]:
    """Of every link, up and down, counted from who sends what to whom."""
    n = sum(each.worker for each in machines)
    found = []
    for each, share in zip(machines, shares, strict=True):
        others = n - each.worker  # workers elsewhere, whose contributions come in and whose results leave
        own = (1 - share) if each.worker else Fraction(0)  # its contributions to others, their results
        found += [(own + others * share) / each.up, (own + others * share) / each.down]
    return found


def solved(machines: list[Machine]) -> float:
    """The least time, by a linear program over the shares and the time."""
    optimize = pytest.importorskip("scipy.optimize")
    n, count = sum(each.worker for each in machines), len(machines)
    rows, limits = [], []
    for index, each in enumerate(machines):
        for speed in (each.up, each.down):
            row = [0.0] * (count + 1)
            row[index] = float(n - each.worker - (1 if each.worker else 0))
            row[count] = -float(speed)
            rows.append(row)
            limits.append(-1.0 if each.worker else 0.0)
    bounds = [(0, 1 if each.server else 0) for each in machines] + [(0, None)]
    answer = optimize.linprog(
        [0.0] * count + [1.0], A_ub=rows, b_ub=limits, A_eq=[[1.0] * count + [0.0]], b_eq=[1.0], bounds=bounds
    )
    assert answer.success, answer.message
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(300))
def test_the_slowest_link_is_as_fast_as_a_linear_program_makes_it(seed: int) -> None:
    machines = drawn(seed)
    shares = shares_by_speed(machines)
    assert sum(shares) == 1
    assert all(share >= 0 for share in shares)
    assert all(each.server or not share for each, share in zip(machines, shares, strict=True))
    assert max(link_times(machines, shares)) == least_time(machines)
    assert float(least_time(machines)) == pytest.approx(solved(machines), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("workers", range(1, 9))
@pytest.mark.parametrize("extra", range(9))
def test_links_that_are_alike_have_the_shares_of_mixed_mode(workers: int, extra: int) -> None:
    machines = [Machine(True, True, ONE, ONE)] * workers + [Machine(False, True, ONE, ONE)] * extra
    x, y = machine_shares(workers, workers, extra)
    assert shares_by_speed(machines) == [x] * workers + [y] * extra


def test_the_unit_of_speeds_does_not_matter() -> None:
    machines = drawn(7)
    scaled = [Machine(each.worker, each.server, 8 * each.up, 8 * each.down) for each in machines]
    assert shares_by_speed(machines) == shares_by_speed(scaled)


def test_without_a_server_there_is_nothing_to_share() -> None:
    with pytest.raises(ValueError, match="no machine has a server"):
        shares_by_speed([Machine(True, False, ONE, ONE)])


def said(role: Role, rank: int, where: str, up: int = 0, down: int = 0) -> Member:
    machine = messages.Machine("boot", where, "", up, down)
    return Member(role, rank, "host", "", 0, 1, rank, 0, 1, 0, machine=machine)


def test_what_members_say_of_their_links_decides() -> None:
    """Four workers and four servers, one of which has a quarter of the speed of the others."""
    workers = [said("worker", rank, f"w{rank}", 4, 4) for rank in range(4)]
    servers = [said("server", rank, f"s{rank}", 4, 4 if rank else 1) for rank in range(4)]
    shares = shares_of(View(0, 0, 4, [*workers, *servers]), False)
    assert shares == [Fraction(1, 13), *[Fraction(4, 13)] * 3]


def test_servers_of_one_machine_share_its_link_and_the_least_that_is_said_of_it_counts() -> None:
    workers = [said("worker", rank, f"w{rank}", 10, 10) for rank in range(2)]
    servers = [said("server", 0, "s", 9, 9), said("server", 1, "s", 3, 3), said("server", 2, "t", 3, 3)]
    shares = shares_of(View(0, 0, 2, [*workers, *servers]), False)
    assert shares == [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]


def test_unless_every_machine_says_its_speed_links_count_as_alike() -> None:
    members = [said("worker", 0, "w", 10, 10), said("server", 0, "s", 10, 10), said("server", 1, "t")]
    view = View(0, 0, 1, members)
    said_of_it = (
        "not told on the machine of server 1 (host host); set it there, too, or speed= in the host file"
    )
    assert why_not_by_speed(view, False) == said_of_it
    assert shares_of(view, False) == [Fraction(1, 2), Fraction(1, 2)]
    assert why_not_by_speed(View(0, 0, 1, members[:2]), False) == ""
    assert why_not_by_speed(View(0, 0, 1, members[2:]), False) == ""  # nobody has told anything


def test_speeds_that_forced_mixed_mode_makes_useless_are_not_dropped_silently() -> None:
    view = View(0, 0, 1, [said("worker", 0, "w", 10, 10), said("server", 0, "s", 1, 1)])
    assert "BYTEPS_ENABLE_MIXED_MODE=1" in why_not_by_speed(view, True)


@pytest.mark.parametrize("seed", range(40))
def test_placement_keeps_to_shares_by_speed(seed: int) -> None:
    draw = random.Random(seed)
    workers = [said("worker", rank, f"w{rank}", *draw.choices(range(1, 10**9), k=2)) for rank in range(3)]
    servers = [said("server", rank, f"s{rank}", *draw.choices(range(1, 10**9), k=2)) for rank in range(4)]
    shares = shares_of(View(0, 0, 3, [*workers, *servers]), False)
    assert sum(shares) == 1
    placement = Placement([2] * 4, shares=shares)
    placement.place(0, 5_000 * 65_536, 65_536)
    for loads, share in zip(placement.loads, shares, strict=True):
        assert abs(sum(loads) - share * 5_000 * 65_536) <= 65_536
