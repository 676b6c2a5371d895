"""Which ranks share a machine, and how the servers count them."""

from __future__ import annotations

from byteps.control.machines import children, machine_index, machines, on_one_host
from byteps.control.messages import Member, View


def view(*worker_ids: int) -> View:
    """A job whose rank r is on the machine ``worker_ids[r]``, and one server."""
    workers = [
        Member("worker", rank, "abcdefghij"[machine], "10.0.0.1", 0, 0, machine, 0, 1, 100 + rank)
        for rank, machine in enumerate(worker_ids)
    ]
    server = Member("server", 0, "s", "10.0.0.2", 9000, 2, 0, 0, 1, 99)
    return View(1, 0, len(workers), [*workers, server])


def ranks(of: View) -> list[list[int]]:
    return [[worker.rank for worker in machine] for machine in machines(of)]


def test_machines_may_differ_in_size() -> None:
    job = view(0, 0, 1, 2, 2, 2)
    assert ranks(job) == [[0, 1], [2], [3, 4, 5]]
    assert [machine_index(job, rank) for rank in range(6)] == [0, 0, 1, 2, 2, 2]


def test_one_host_is_where_all_members_are() -> None:
    apart = view(0, 0)
    assert not on_one_host(apart)  # the server is elsewhere
    together = View(1, 0, 2, [*apart.workers(), Member("server", 0, "a", "10.0.0.1", 9000, 2, 0, 0, 1, 99)])
    assert on_one_host(together)


def test_children_of_grouped_ranks_are_machines() -> None:
    names, child_of = children(view(0, 0, 1, 2, 2, 2), grouped=True)
    assert names == ["workers 0, 1 (host a)", "worker 2 (host b)", "workers 3, 4, 5 (host c)"]
    assert child_of == [0, 0, 1, 2, 2, 2]


def test_children_are_ranks_when_nothing_is_grouped() -> None:
    names, child_of = children(view(0, 0, 1), grouped=False)
    assert names == ["worker 0 (host a)", "worker 1 (host a)", "worker 2 (host b)"]
    assert child_of == [0, 1, 2]


def test_numbers_of_machines_may_have_gaps_and_ranks_may_be_forced() -> None:
    job = view(7, 3, 7, 3)  # BYTEPS_GLOBAL_RANK: the ranks of a machine need not follow each other
    assert ranks(job) == [[1, 3], [0, 2]]
    assert [machine_index(job, rank) for rank in range(4)] == [1, 0, 1, 0]
    names, child_of = children(job, grouped=True)
    assert names == ["workers 1, 3 (host d)", "workers 0, 2 (host h)"]
    assert child_of == [1, 0, 1, 0]


def test_one_machine_is_one_child() -> None:
    assert children(view(0, 0), grouped=True) == (["workers 0, 1 (host a)"], [0, 0])
    assert children(view(0), grouped=True) == (["worker 0 (host a)"], [0])
