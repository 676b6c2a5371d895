"""Links go away without a word, for a while or for good. Less than the time-out never ends a job; more is
named: who, and where it is seen that two members reach the scheduler and not each other, both of them.
"""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest
from lab_job import INTERVAL_S, RATE_MBIT, TIMEOUT_S, lab_job, why_no_cuts

from byteps.testing import Cluster
from byteps.tools.lab import Lab
from byteps.tools.lab.layout import SCHEDULER, Layout

pytestmark = pytest.mark.skipif(bool(why_no_cuts()), reason=why_no_cuts() or "can be cut here")

SMALL, MIDDLE, LARGE = 50_000, 500_000, 4_000_000  # elements: a step of a few milliseconds to a second
# TCP needs to try again, a second passes between two looks, the verdict travels, and other tests run.
NOTICE_S = TIMEOUT_S + 12.0


def outages(lab: Lab, away: dict[str, tuple[float, float]]) -> None:
    """Take links away, each from and for so many seconds; return when all are back."""
    moments = [(start, lab.unplug, host) for host, (start, _) in away.items()]
    moments += [(start + length, lab.plug, host) for host, (start, length) in away.items()]
    began, takes_s = time.monotonic(), 0.0
    for moment, change, host in sorted(moments, key=lambda each: each[0]):
        # Nothing may be away for longer than asked for because the command to end it takes its time.
        time.sleep(max(0.0, began + moment - takes_s - time.monotonic()))
        called = time.monotonic()
        change(host)
        takes_s = time.monotonic() - called


def finish(job: Cluster, stop: Path) -> list[int]:
    """Let the workers end; the steps they made."""
    stop.touch()
    return [result["steps"] for result in job.wait()]


def test_links_that_are_away_for_less_than_the_time_out_end_no_job(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    layout, stop = Layout(3, 0, 2), tmp_path / "stop"
    parts = [0.3, 0.7, 0.9]
    with Lab(layout.hosts, RATE_MBIT) as lab, lab_job(lab, layout, (str(stop), MIDDLE), {}) as job:
        # Hosts of one kind together: between two hosts that go one after the other, more would be away.
        for hosts in (layout.worker_hosts, layout.server_hosts, [SCHEDULER]):
            rng.shuffle(parts)
            away = {
                host: (rng.uniform(0, 2 * INTERVAL_S), (parts if len(hosts) > 1 else [0.9])[at] * TIMEOUT_S)
                for at, host in enumerate(hosts)
            }
            print("away:", away)
            outages(lab, away)
            time.sleep(TIMEOUT_S)  # what TCP may need, before Linux 6.15, to try again over every connection
            assert all(process.running for process in job.processes), job.describe()
        cuts = [("w0", "s1"), ("s1", "w0"), ("w1", "s0"), ("s1", "w2")]  # one link, and one way of two others
        for ends in cuts:
            lab.cut(*ends)
        time.sleep(0.9 * TIMEOUT_S)
        for ends in cuts:
            lab.heal(*ends)
        steps = finish(job, stop)
        assert len(set(steps)) == 1, job.describe()


@pytest.mark.parametrize("host", ["w1", "s0"])
def test_a_link_that_stays_away_is_named(host: str, tmp_path: Path) -> None:
    layout = Layout(2, 0, 1)
    with (
        Lab(layout.hosts, RATE_MBIT) as lab,
        lab_job(lab, layout, (str(tmp_path / "stop"), SMALL), {}) as job,
    ):
        lab.unplug(host)
        gone = job.servers[0] if host == "s0" else job.workers[1]
        others = [process for process in job.processes if process is not gone]
        for process in others:
            process.wait(NOTICE_S)
        role, rank = ("server", 0) if host == "s0" else ("worker", 1)
        for worker in (each for each in job.workers if each is not gone):
            assert (worker.result["role"], worker.result["rank"], worker.result["host"]) == (role, rank, host)
            assert (
                "no heartbeat" in worker.result["text"]
                and "PS_HEARTBEAT_TIMEOUT = 3" in worker.result["text"]
            )
            assert worker.result["waited_s"] > TIMEOUT_S, job.describe()
        gone.wait(NOTICE_S)
        assert "scheduler" in gone.output and "no heartbeat" in gone.output, job.describe()


@pytest.mark.parametrize(
    ("ways", "elements"), [("both", LARGE), ("to the server", SMALL), ("to the worker", LARGE)]
)
def test_two_members_that_cannot_reach_each_other_are_named(ways: str, elements: int, tmp_path: Path) -> None:
    layout = Layout(2, 0, 2)
    args, env = (str(tmp_path / "stop"), elements), {"BYTEPS_RECONNECT_S": "2"}
    with Lab(layout.hosts, RATE_MBIT) as lab, lab_job(lab, layout, args, env) as job:
        if ways != "to the worker":
            lab.cut("w0", "s1")
        if ways != "to the server":
            lab.cut("s1", "w0")
        for process in job.processes:
            process.wait(NOTICE_S)
        texts = {worker.result["text"] for worker in job.workers}
        assert len(texts) == 1, job.describe()
        text = texts.pop()
        ends = r"worker 0 \(host w0, pid \d+\) and server [01] \(host s1, pid \d+\) cannot reach each other"
        assert re.match(ends, text), text
        assert "both reach the scheduler" in text and "PS_HEARTBEAT_TIMEOUT = 3" in text, text
        for process in (job.scheduler, *job.servers):
            assert process is not None and process.exit_code == 1, job.describe()
            assert "cannot reach each other" in process.output, job.describe()


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_a_cut_that_outlasts_a_data_connection_and_heals_in_time_ends_no_job(
    elements: int, tmp_path: Path
) -> None:
    layout, stop = Layout(2, 0, 2), tmp_path / "stop"
    env = {"BYTEPS_RECONNECT_S": "20"}
    with Lab(layout.hosts, RATE_MBIT) as lab, lab_job(lab, layout, (str(stop), elements), env) as job:
        for ends in (("w0", "s1"), ("s1", "w0")):
            lab.cut(*ends)
        # The worker gives its connections up after the time-out and a little more, and connects in vain.
        job.workers[0].wait_line("connecting again", NOTICE_S)
        for ends in (("w0", "s1"), ("s1", "w0")):
            lab.heal(*ends)
        job.workers[0].wait_line("was made again", NOTICE_S)
        steps = finish(job, stop)
        assert len(set(steps)) == 1, job.describe()


def test_a_cut_between_two_steps_is_no_error_before_something_is_wanted(tmp_path: Path) -> None:
    layout, stop, idle = Layout(2, 0, 1), tmp_path / "stop", tmp_path / "idle"
    os.mkfifo(idle)
    args = (str(stop), SMALL, str(idle))
    with Lab(layout.hosts, RATE_MBIT) as lab, lab_job(lab, layout, args, {}) as job:
        lab.cut("w0", "s0")
        lab.cut("s0", "w0")
        time.sleep(2.5 * TIMEOUT_S)
        assert all(process.running for process in job.processes), job.describe()
        lab.heal("w0", "s0")
        lab.heal("s0", "w0")
        idle.write_text("go on")
        finish(job, stop)
