"""Ranks with different names: all of them and the scheduler say which, within seconds and again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import byteps as bps
from byteps.testing import cluster

PATIENT = {"BYTEPS_OP_TIMEOUT_S": "12", "BYTEPS_STALL_WARN_S": "600"}
PAIR = "'fc1.weight' only on worker 0, 'fc_1.weight' only on worker 1"


def one_name_each() -> str:
    bps.init()
    bps.push_pull(np.ones(4), name="stem.weight")
    try:
        bps.push_pull(np.ones(4), name=("fc1.weight", "fc_1.weight")[bps.rank()])
    except bps.OperationTimeoutError as error:
        return str(error)
    except bps.PeerLostError as error:
        return str(error)  # the other one was faster
    return "agreed"


@pytest.mark.parametrize(
    "shape", [{"workers": 2, "servers": 1}, {"nproc": 2}], ids=["servers", "one machine"]
)
def test_names_on_one_rank_only_are_said_everywhere(shape: dict[str, Any]) -> None:
    with cluster(one_name_each, env=PATIENT, **shape) as job:
        for process in [*job.workers, *([job.scheduler] if job.scheduler is not None else [])]:
            process.wait_line(PAIR)
        results = job.wait(check=False)
        assert any(PAIR in (text or "") for text in results), job.describe()
        for worker in job.workers:
            lines = [line for line in worker.output.splitlines() if PAIR in line and "WARNING worker" in line]
            assert len(lines) == 2, job.describe()  # after 3 s and after 8 s, or a little later


def one_is_slow() -> float:
    bps.init()
    bps.push_pull(np.ones(4), name="stem.weight")
    if bps.rank() == 1:
        threading.Event().wait(5.0)
    total = 0.0
    for name in ("fc1.weight", "fc2.weight"):
        total += float(bps.push_pull(np.ones(4), average=False, name=name)[0])
    return total


def test_a_slow_rank_is_no_alarm() -> None:
    with cluster(one_is_slow, env={**PATIENT, "BYTEPS_LOG_LEVEL": "INFO"}) as job:
        assert job.wait() == [4.0, 4.0]
        for worker in job.workers:
            lines = [line for line in worker.output.splitlines() if "only some ranks" in line]
            assert len(lines) == 1 and " INFO " in lines[0], job.describe()
            assert "'fc1.weight' only on worker 0; perhaps the others are only slower" in lines[0]


def one_has_more() -> str:
    """A sum that the other rank never asks for: it is awaited, and then it is news."""
    bps.init()
    try:
        bps.push_pull(np.ones(4), name="stem.weight")
        if bps.rank() == 0:
            bps.push_pull(np.ones(4), name="extra")
        bps.push_pull(np.ones(4), name="stem.weight")
    except (bps.OperationTimeoutError, bps.PeerLostError) as error:
        return str(error)
    return "agreed"


def test_a_name_that_one_rank_has_on_top_is_a_warning_when_it_is_awaited() -> None:
    env = {"BYTEPS_OP_TIMEOUT_S": "12", "BYTEPS_STALL_WARN_S": "5"}
    with cluster(one_has_more, env=env) as job:
        line = job.workers[0].wait_line("extra", 15.0)
        assert " WARNING " in line and "waits for" in line and "'extra' only on worker 0" in line
        results = job.wait(check=False)
        assert any("'extra' only on worker 0" in (text or "") for text in results), job.describe()
