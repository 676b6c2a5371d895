"""BYTEPS_ENABLE_ASYNC=1: a contribution counts at once, nobody waits for anybody."""

from __future__ import annotations

from byteps.testing import cluster, report

ASYNC = {"BYTEPS_ENABLE_ASYNC": "1"}


def push_alone(rank_that_pushes: int) -> list[float]:
    import numpy as np

    import byteps as bps

    bps.init()
    seen = []
    base = np.full(300_000, 100.0 if bps.rank() == 0 else -1.0, np.float32)
    seen.append(float(bps.broadcast(base, root_rank=0, name="weight")[-1]))
    if bps.rank() == rank_that_pushes:
        for _ in range(3):  # the other rank never pushes: no barrier
            seen.append(float(bps.push_pull(np.ones(300_000, np.float32), average=False, name="weight")[-1]))
    return seen


def test_a_contribution_counts_at_once_and_never_waits() -> None:
    for rank in (0, 1):
        with cluster(push_alone, workers=2, servers=1, args=(rank,), env=ASYNC) as job:
            results = job.wait()
            assert results[rank] == [100.0, 101.0, 102.0, 103.0]
            assert 100.0 <= results[1 - rank][0] <= 103.0  # whatever had been added when it asked


def push_all(rounds: int) -> float:
    import numpy as np

    import byteps as bps

    bps.init()
    bps.broadcast(np.zeros(5000, np.float64), root_rank=0, name="weight")
    for _ in range(rounds):
        bps.push_pull(np.full(5000, 4.0 ** bps.rank()), average=False, name="weight")
    bps.barrier()
    value = bps.push_pull(np.zeros(5000), average=False, name="weight")
    assert (value == value[0]).all()
    return float(value[0])


def test_nothing_is_lost_or_counted_twice() -> None:
    with cluster(push_all, workers=3, servers=2, args=(50,), env=ASYNC) as job:
        assert job.wait() == [50 * (1 + 4 + 16)] * 3


def without_a_name() -> str:
    import numpy as np

    import byteps as bps

    bps.init()
    try:
        bps.push_pull(np.ones(3))
    except bps.ConfigError as error:
        return str(error)
    return ""


def test_names_are_required() -> None:
    with cluster(without_a_name, workers=2, servers=1, env=ASYNC) as job:
        assert all("BYTEPS_ENABLE_ASYNC" in text and "name=" in text for text in job.wait())


def no_base() -> float:
    import numpy as np

    import byteps as bps

    bps.init()
    report(1)
    return float(bps.push_pull(np.full(10, 2.0, np.float32), average=False, name="delta")[0])


def test_without_a_base_value_the_first_contribution_is_the_value() -> None:
    with cluster(no_base, workers=2, servers=1, env=ASYNC) as job:
        assert sorted(job.wait()) == [2.0, 4.0]
