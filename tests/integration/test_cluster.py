"""``byteps.testing.cluster``: what it collects, how it ends, and that nothing stays behind."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from byteps.testing import ClusterError, cluster, report


def add(a: int, b: int) -> dict[str, int]:
    report("starting")
    print("adding", flush=True)
    return {"sum": a + b}


def mean(value: float) -> float:
    import numpy as np

    import byteps as bps

    bps.init()
    return float(bps.push_pull(np.array([value + bps.rank()]), name="x")[0])


def test_a_function_and_its_result() -> None:
    with cluster(add, workers=1, args=(2, 3)) as job:
        assert job.wait() == [{"sum": 5}]
        assert job.workers[0].reports == ["starting"]
        assert job.workers[0].output == "adding\n"
        assert job.scheduler is None and job.servers == []


def test_a_whole_job() -> None:
    with cluster(mean, workers=2, servers=1, args=(1.0,)) as job:
        assert job.wait() == [1.5, 1.5]
        assert [process.exit_code for process in job.processes] == [0, 0, 0, 0]


def test_a_script_with_arguments(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom byteps.testing import report\nreport(sys.argv[1:])\n")
    with cluster(script, workers=1, args=("--epochs", 3)) as job:
        job.wait()
        assert job.workers[0].reports == [["--epochs", "3"]]


def test_an_error_shows_code_and_output() -> None:
    with cluster("import sys; print('some last words'); sys.exit(3)", workers=1) as job:
        with pytest.raises(ClusterError, match=r"worker 0.*exit code 3\nsome last words"):
            job.wait()
        assert job.wait(check=False) == [None]


def test_one_worker_can_have_its_own_environment() -> None:
    program = "import os; from byteps.testing import report; report([os.environ.get(n) for n in ('A', 'B')])"
    with cluster(program, workers=1, env={"A": "all"}, worker_env={0: {"B": "one"}}) as job:
        job.wait()
        assert job.workers[0].reports == [["all", "one"]]


WAITS = "import sys, threading; print('ready', flush=True); threading.Event().wait(600)"


def test_the_deadline_names_who_is_late() -> None:
    late = pytest.raises(ClusterError, match="still running at the deadline: worker 0")
    with cluster(WAITS, workers=1, deadline_s=0.5) as job, late:
        job.wait()


def test_signals_and_waiting_for_output() -> None:
    with cluster(WAITS, workers=1) as job:
        worker = job.workers[0]
        assert worker.wait_line("ready") == "ready"
        with pytest.raises(TimeoutError, match="no sign of a line with 'never'"):
            worker.wait_line("never", timeout_s=0.05)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == -signal.SIGTERM and not worker.running
        with pytest.raises(TimeoutError, match="report number 0"):  # at once: it has ended
            worker.wait_report(0, timeout_s=600)


def test_what_a_worker_started_ends_with_the_block() -> None:
    program = (
        "import subprocess, sys, threading\n"
        "from byteps.testing import report\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait(600)'])\n"
        "report(child.pid)\n"
        "threading.Event().wait(600)\n"
    )
    with cluster(program, workers=1) as job:
        grandchild = os.pidfd_open(job.workers[0].wait_report())
    with os.fdopen(grandchild) as ended:  # readable once that process has ended
        assert select.select([ended], [], [], 10.0)[0]


def test_a_local_function_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(ValueError, match="top level of a module"), cluster(inner, workers=1):
        pass
