"""Worker and server on one machine read each other's memory: exact, off when asked, and a liar is named."""

from __future__ import annotations

from typing import Any

import pytest

from byteps.testing import cluster

ELEMENTS = 700_001  # 2.8 MB of float32: many pieces and a rest
SERVER = {"BYTEPS_SERVER_ENGINE_THREAD": "2"}


def operations(rounds: int) -> dict[str, Any]:
    """Sums, averages and broadcasts of large and small tensors; what was wrong, and what was moved."""
    import numpy as np

    import byteps as bps

    bps.init()
    rank, size = bps.rank(), bps.size()
    total = sum(4.0**r for r in range(size))
    ramp = np.arange(ELEMENTS) % 5
    wrong = []

    def check(what: str, got: Any, wanted: Any) -> None:
        if not np.array_equal(got, wanted):
            wrong.append(what)

    for number in range(rounds):
        values = (4.0**rank * ramp).astype(np.float32)
        check(f"sum {number}", bps.push_pull(values, average=False, name="sum"), total * ramp)
        check("argument", values, 4.0**rank * ramp)
    half = np.full(ELEMENTS, 4.0**rank * size, np.float16)
    check("half", bps.push_pull(half, name="half"), np.full(ELEMENTS, total, np.float16))
    small = np.full(3, 4.0**rank, np.float32)
    check("small", bps.push_pull(small, average=False, name="small"), np.full(3, total))
    for root in range(size):
        mine = (4.0**rank * ramp).astype(np.float64)
        check(f"broadcast {root}", bps.broadcast(mine, root, name="weight"), 4.0**root * ramp)
    bps.barrier()
    return {"wrong": wrong, **bps.counters()}


@pytest.mark.parametrize(
    ("env", "by_address"),
    [
        ({}, True),
        ({"BYTEPS_JOB_SECRET": "correct horse"}, True),
        ({"BYTEPS_CHECKSUM": "on"}, True),
        ({"BYTEPS_DETERMINISTIC": "0"}, True),
        ({"BYTEPS_ENABLE_IPC": "0"}, False),
    ],
    ids=["plain", "secret", "checksum", "order of arrival", "switched off"],
)
def test_operations_are_exact_and_their_bytes_go_where_they_should(
    env: dict[str, str], by_address: bool
) -> None:
    with cluster(operations, workers=2, servers=2, args=(3,), env={**SERVER, **env}) as job:
        for result in job.wait():
            assert result["wrong"] == []
            # Three rounds of float32, one of float16, a broadcast of float64 from here, and the small one.
            pushed = ELEMENTS * (3 * 4 + 2 + 8) + 12
            assert (result["pushed_bytes"], result["pulled_bytes"]) == (pushed, pushed)
            if by_address:
                assert max(result["wire_sent_bytes"], result["wire_received_bytes"]) < pushed // 20
            else:
                assert min(result["wire_sent_bytes"], result["wire_received_bytes"]) > pushed


def asynchronous() -> dict[str, Any]:
    import numpy as np

    import byteps as bps

    bps.init()
    bps.broadcast(np.zeros(ELEMENTS, np.float32), root_rank=0, name="weight")
    bps.barrier()
    bps.push_pull(np.full(ELEMENTS, 4.0 ** bps.rank(), np.float32), average=False, name="weight")
    bps.barrier()
    value = bps.push_pull(np.zeros(ELEMENTS, np.float32), average=False, name="weight")
    bps.barrier()
    return {"values": sorted({float(value.min()), float(value.max())}), **bps.counters()}


def test_asynchronous_results_do_not_go_by_address() -> None:
    """Anybody's push replaces the stored value, so nobody may read it where it lies."""
    with cluster(asynchronous, workers=2, servers=1, env={**SERVER, "BYTEPS_ENABLE_ASYNC": "1"}) as job:
        for result in job.wait():
            assert result["values"] == [5.0]
            assert result["wire_sent_bytes"] < result["pushed_bytes"] // 20
            assert result["wire_received_bytes"] > result["pulled_bytes"]


def one_offers_what_is_not_there() -> str:
    """Rank 0 pushes a tensor of which only the first page can be read."""
    import ctypes
    import mmap

    import numpy as np

    import byteps as bps
    from byteps.worker import current

    bps.init()
    size = 1 << 20
    array = np.ones(size // 4, np.float32)
    bps.declare("gradient", array)
    bps.barrier()
    try:
        if bps.rank() == 1:
            bps.push_pull(array, average=False, name="gradient")
            return "a result"
        libc = ctypes.CDLL(None, use_errno=True)
        memory = mmap.mmap(-1, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        tail = ctypes.c_void_p(address + mmap.PAGESIZE)
        assert libc.mprotect(tail, ctypes.c_size_t(size - mmap.PAGESIZE), 0) == 0
        session = current.required("push_pull")
        native = session.tensors["gradient"].native
        session._client.push_pull(native, address, array.ctypes.data, 0, False).wait()
        return "a result"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_a_worker_that_offers_what_is_not_there_is_named() -> None:
    with cluster(one_offers_what_is_not_there, workers=2, servers=1, env=SERVER) as job:
        results = job.wait(check=False)
        assert results[1].startswith("PeerLostError: "), "nobody waits for ever"
        server = job.servers[0]
        assert server.exit_code == 1, "it ends because the job does, and by itself"
        words = [
            "worker 0",
            "broke the protocol: PUSH: cannot read",
            "of gradient",
            "Bad address",
            "ENABLE_IPC=0",
        ]
        line = next(line for line in server.output.splitlines() if "broke the protocol" in line)
        for word in words:
            assert word in line
