"""Metrics of a real job: every process has its own, and the scheduler those of all."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from byteps.testing import cluster

STEPS = 5


def work(folder: str) -> int:
    import numpy as np

    import byteps as bps

    bps.init()
    for _ in range(STEPS):
        if bps.rank() == 1:
            time.sleep(0.05)
        bps.push_pull(np.ones(100_000, np.float32), name="gradient")
        bps.step()
    while not Path(folder, "enough").exists():
        time.sleep(0.01)
    return bps.rank()


def free_ports(count: int) -> int:
    """The first of so many neighbours that nobody uses."""
    while True:
        with contextlib.ExitStack() as stack:
            try:
                first = stack.enter_context(socket.create_server(("", 0))).getsockname()[1]
                for number in range(1, count):
                    stack.enter_context(socket.create_server(("", first + number)))
            except (OSError, OverflowError):
                continue
            return int(first)


def scraped(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def wait_for(port: int, count: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The numbers, when all steps of so many workers are in them."""
    end = time.monotonic() + 30
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            found = scraped(port)
        if [value for _, value in found.get("byteps_step_seconds_count", [])] == [STEPS - 1] * count:
            return found
        time.sleep(0.05)
    raise AssertionError(found)


@pytest.mark.parametrize("ipc", ["0", "1"], ids=["over sockets", "by address"])
def test_the_scheduler_has_the_numbers_of_all(ipc: str, tmp_path: Path) -> None:
    first = free_ports(4)
    env = {"BYTEPS_METRICS_PORT": str(first), "BYTEPS_ENABLE_IPC": ipc}
    with cluster(work, workers=2, servers=1, args=(str(tmp_path),), env=env, deadline_s=60) as job:
        found = wait_for(first, 2)
        own = wait_for(first + 2, 1)  # worker 1
        server = scraped(first + 3)
        (tmp_path / "enough").touch()
        job.wait()
    waited = {labels["rank_waited_for"]: value for labels, value in found["byteps_waited_for_seconds_total"]}
    assert waited["1"] > 0.04 * STEPS > waited.get("0", 0.0)
    for way in ("sent", "received"):
        moved = {
            labels["rank"]: value
            for labels, value in found["byteps_wire_bytes_total"]
            if (labels["role"], labels["direction"]) == ("worker", way)
        }
        assert moved == {"0": STEPS * 400_000, "1": STEPS * 400_000}, way
    assert ({"role": "scheduler", "rank": "0", "member": "worker", "state": "active"}, 2.0) in found[
        "byteps_members"
    ]
    assert {labels["rank"] for labels, _ in own["byteps_operations_total"]} == {"1"}
    assert server["byteps_rounds_total"][0][1] >= STEPS
