"""Several ranks on a machine: what leaves it, what goes through servers, and more ranks than cores."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from byteps.testing import cluster

ELEMENTS = 1_000_003


def push_and_count(rounds: int, dtype: str) -> dict[str, Any]:
    import numpy as np

    import byteps as bps
    from byteps.testing import exact

    bps.init()
    wanted = exact.total(bps.size(), (ELEMENTS,))
    data = exact.contribution(bps.rank(), (ELEMENTS,)).astype(dtype)
    for _ in range(rounds):
        got = bps.push_pull(data, average=False, name="gradient")
    np.testing.assert_array_equal(got, wanted)
    bps.barrier()
    return {"machine": os.environ["DMLC_WORKER_ID"], **bps.counters()}


def _by_machine(results: list[dict[str, Any]], counter: str) -> dict[str, int]:
    totals: dict[str, int] = {}
    for result in results:
        totals[result["machine"]] = totals.get(result["machine"], 0) + result[counter]
    return totals


@pytest.mark.parametrize("nproc", [2, (1, 2), (2, 1)], ids=["2 and 2", "1 and 2", "2 and 1"])
def test_one_machines_worth_of_bytes_leaves_each_machine(nproc: Any) -> None:
    rounds = 5
    with cluster(
        push_and_count, workers=2, nproc=nproc, servers=2, args=(rounds, "int32"), deadline_s=60
    ) as job:
        results = job.wait()
    once = rounds * ELEMENTS * 4
    assert _by_machine(results, "pushed_bytes") == {"0": once, "1": once}
    assert _by_machine(results, "pulled_bytes") == {"0": once, "1": once}
    shares = [result["pushed_bytes"] for result in results if result["local_bytes"]]
    assert all(abs(share - once / 2) <= 2 * rounds * 384 * 1024 for share in shares), shares


def test_every_rank_pushes_for_itself_without_shared_memory() -> None:
    env = {"BYTEPS_ENABLE_IPC": "0"}
    with cluster(
        push_and_count, workers=2, nproc=(2, 1), servers=1, args=(2, "int32"), env=env, deadline_s=60
    ) as job:
        results = job.wait()
    for result in results:
        assert result["pushed_bytes"] == 2 * ELEMENTS * 4
        assert result["wire_sent_bytes"] > result["pushed_bytes"]
        assert result["local_bytes"] == 0


def test_nothing_but_memory_without_servers() -> None:
    with cluster(push_and_count, nproc=3, args=(4, "float64"), deadline_s=60) as job:
        results = job.wait()
    for result in results:
        assert result["local_bytes"] == 4 * ELEMENTS * 8
        assert result["pushed_bytes"] == result["wire_sent_bytes"] == result["wire_received_bytes"] == 0


def test_servers_can_be_forced_on_a_single_machine() -> None:
    with cluster(push_and_count, workers=1, nproc=2, servers=2, args=(3, "int32"), deadline_s=60) as job:
        results = job.wait()
        assert all(server.exit_code == 0 for server in job.servers)
    assert _by_machine(results, "pushed_bytes") == {"0": 3 * ELEMENTS * 4}


def test_a_server_on_this_machine_is_read_and_not_sent_to() -> None:
    with cluster(push_and_count, workers=2, servers=1, args=(3, "int32"), deadline_s=60) as job:
        results = job.wait()
    for result in results:
        assert result["pushed_bytes"] == 3 * ELEMENTS * 4
        assert result["wire_sent_bytes"] + result["wire_received_bytes"] < ELEMENTS


def many_rounds_on_many_ranks(rounds: int) -> float:
    import numpy as np

    import byteps as bps

    bps.init()
    small, large = np.zeros(300, np.float32), bps.empty(300_000, np.float32)
    for number in range(rounds):
        small[:] = bps.rank() + number
        large[:] = bps.rank() * number
        handles = [
            bps.push_pull_async(small, average=False, name="small"),
            bps.push_pull_async(large, average=False, name="large"),
        ]
        got, more = (bps.synchronize(handle) for handle in handles)
        size = bps.size()
        ranks = size * (size - 1) // 2
        assert (got == ranks + size * number).all(), (number, got[:3])
        assert (more == ranks * number).all(), (number, more[:3])
    return float(got[0])


def test_more_ranks_than_cores() -> None:
    with cluster(many_rounds_on_many_ranks, nproc=8, args=(60,), deadline_s=90) as job:
        assert job.wait() == [28.0 + 8 * 59] * 8


def switches_for_many_small_tensors(count: int, rounds: int) -> list[int]:
    import resource

    import numpy as np

    import byteps as bps

    bps.init()
    mine = [np.full(1000, bps.rank() + index, np.float32) for index in range(count)]
    switches = []
    for _ in range(1 + rounds):
        bps.barrier()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        handles = [
            bps.push_pull_async(tensor, average=False, name=f"t{index}") for index, tensor in enumerate(mine)
        ]
        sums = [bps.synchronize(handle) for handle in handles]
        switches.append(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)
        assert all(total[0] == 2 * index + 1 for index, total in enumerate(sums))
    return switches[1:]  # the first time they are declared


def test_many_small_tensors_need_few_wake_ups() -> None:
    with cluster(switches_for_many_small_tensors, nproc=2, args=(1000, 9), deadline_s=60) as job:
        worse = [max(both) for both in zip(*job.wait(), strict=True)]
    # One for each would be 1,000. The median: when a rank is not run for a while, the other waits often.
    assert statistics.median(worse) < 250, worse


def resume_on_the_same_machine() -> list[float]:
    import numpy as np

    import byteps as bps

    seen = []
    bps.init()
    kept = bps.empty(1000, np.float32)
    for _ in range(2):
        kept[:] = bps.rank() + 1
        seen.append(float(bps.push_pull(kept, average=False, name="x")[0]))
        bps.suspend()
        bps.resume(1, 0)
    kept[:] = bps.rank() + 1
    return [*seen, float(bps.push_pull(kept, average=False, name="x")[0])]


def test_the_group_forms_again_after_a_suspension() -> None:
    with cluster(resume_on_the_same_machine, nproc=2, deadline_s=60) as job:
        assert job.wait() == [[3.0, 3.0, 3.0]] * 2


@pytest.mark.parametrize(
    ("options", "env"),
    [
        (["-n", "2"], {}),
        (["--nproc-per-node", "2"], {}),
        ([], {"NVIDIA_VISIBLE_DEVICES": "0,1", "DMLC_NUM_WORKER": "1", "DMLC_ROLE": "worker"}),
    ],
    ids=["-n", "--nproc-per-node", "visible devices"],
)
def test_the_commands_of_the_readme(options: list[str], env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import byteps as bps, numpy as np\n"
        "bps.init()\n"
        "total = bps.push_pull(np.full(4, bps.rank() + 1.0), average=False, name='x')\n"
        "print(bps.rank(), bps.size(), bps.local_rank(), bps.local_size(), total[0])\n"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("BYTEPS_", "DMLC_", "NVIDIA_"))}
    done = subprocess.run(
        [sys.executable, "-m", "byteps.launcher", *options, sys.executable, str(script)],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 2 0 2 3.0" in done.stdout and "1 2 1 2 3.0" in done.stdout
