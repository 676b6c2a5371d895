"""An urgent tensor overtakes: it waits for what is on the wire, never for what is queued."""

from __future__ import annotations

from typing import Any

import pytest

from byteps import _core
from byteps.testing import cluster

PARTITION = 1 << 20
MEGABYTE = 1 << 20
GIGABYTE = 1 << 30


def urgent_after_bulk(bulk_bytes: int) -> dict[str, Any]:
    import numpy as np

    import byteps as bps

    bps.init()
    bulk = np.zeros(bulk_bytes // 4, np.float32)
    urgent = np.full(MEGABYTE // 4, 4.0 ** bps.rank(), np.float32)
    bps.declare("bulk", bulk)
    bps.declare("urgent", urgent)
    bps.barrier()
    bulk_handle = bps.push_pull_async(bulk, name="bulk", priority=-1)
    urgent_handle = bps.push_pull_async(urgent, average=False, name="urgent", priority=10)
    native = urgent_handle._native
    total = float(bps.synchronize(urgent_handle)[0])
    bulk_was_done = bps.poll(bulk_handle)
    bps.synchronize(bulk_handle)
    return {
        "sum": total,
        "bulk_was_done": bulk_was_done,
        "waited_bytes": native.waited_bytes,
    }


@pytest.mark.parametrize("credit", [1, 4])
def test_a_low_priority_gigabyte_delays_a_megabyte_by_the_credit_at_most(credit: int) -> None:
    # One shard, so that both tensors share one connection and its window.
    env = {
        "BYTEPS_PARTITION_BYTES": str(PARTITION),
        "BYTEPS_SCHEDULING_CREDIT": str(credit),
        "BYTEPS_SERVER_ENGINE_THREAD": "1",
        "BYTEPS_ENABLE_IPC": "0",
    }
    with cluster(
        urgent_after_bulk, workers=2, servers=1, args=(GIGABYTE // 2,), env=env, deadline_s=100
    ) as job:
        for result in job.wait():
            print(result)
            assert result["sum"] == 5.0
            assert not result["bulk_was_done"]
            # The bulk that left after the urgent tensor was submitted: at most a window, and the two
            # pieces that the link had already taken into its current call.
            assert result["waited_bytes"] <= credit * PARTITION + 2 * _core.PIECE_BYTES


def opposite_orders(rounds: int) -> list[list[float]]:
    import numpy as np

    import byteps as bps

    bps.init()
    data = {name: np.full(1_000_000, 4.0 ** bps.rank(), np.float32) for name in ("a", "b")}
    order = ("a", "b") if bps.rank() == 0 else ("b", "a")
    sums = []
    for _ in range(rounds):  # both in flight: each fills its window with what the other sends last
        handles = {name: bps.push_pull_async(data[name], False, name) for name in order}
        sums.append([float(bps.synchronize(handles[name])[-1]) for name in ("a", "b")])
    if bps.rank() == 0:  # one after the other here, both at once there, in the other order
        sums.append([float(bps.push_pull(data[name], False, name)[-1]) for name in ("a", "b")])
    else:
        handles = {name: bps.push_pull_async(data[name], False, name) for name in order}
        sums.append([float(bps.synchronize(handles[name])[-1]) for name in ("a", "b")])
    return sums


@pytest.mark.parametrize("credit", [1, 4])
def test_ranks_that_push_in_opposite_orders_do_not_block_each_other(credit: int) -> None:
    env = {"BYTEPS_SCHEDULING_CREDIT": str(credit), "BYTEPS_PARTITION_BYTES": "65536"}
    env["BYTEPS_SERVER_ENGINE_THREAD"] = "1"
    with cluster(opposite_orders, workers=2, servers=1, args=(3,), env=env) as job:
        assert job.wait() == [[[5.0, 5.0]] * 4] * 2
