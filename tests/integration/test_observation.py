"""What people see when they ask, and what they are told when something takes long."""

from __future__ import annotations

import signal
from typing import Any

from byteps.testing import cluster, report


def two_steps() -> None:
    import numpy as np

    import byteps as bps

    bps.init()
    bps.push_pull(np.array([1.5, 2.5], np.float32) * (bps.rank() + 1), average=False, name="fc.weight")
    bps.push_pull(np.array([7.0], np.float32), average=False, name="other")


def output_of(env: dict[str, str], workers: int = 2) -> tuple[str, str]:
    """Of all workers, and of the server."""
    with cluster(two_steps, workers=workers, servers=1, env=env) as job:
        job.wait()
        return "".join(worker.output for worker in job.workers), job.servers[0].output


def test_quiet_by_default() -> None:
    workers, server = output_of({})
    assert workers == "" and server == ""


def test_sample_tensor_by_name_at_every_stage() -> None:
    workers, server = output_of({"BYTEPS_DEBUG_SAMPLE_TENSOR": "fc.weight"})
    for text in ("push: float32[2] = 1.5, 2.5", "push: float32[2] = 3, 5", "pull: float32[2] = 4.5, 7.5"):
        assert text in workers
    assert "from worker 0" in server and "from worker 1" in server
    assert "result: float32[2] = 4.5, 7.5" in server
    assert "other" not in workers + server


def test_sample_tensor_on_one_machine() -> None:
    with cluster(two_steps, nproc=2, env={"BYTEPS_DEBUG_SAMPLE_TENSOR": "fc.weight"}) as job:
        job.wait()
        for rank, values in enumerate(("1.5, 2.5", "3, 5")):
            assert f"push: float32[2] = {values}" in job.workers[rank].output
            assert "pull: float32[2] = 4.5, 7.5" in job.workers[rank].output
            assert "other" not in job.workers[rank].output


def test_sample_tensor_by_key() -> None:
    workers, _ = output_of({"BYTEPS_DEBUG_SAMPLE_TENSOR": "0"})
    assert "fc.weight (key 0) round 0 push" in workers


def test_server_debug_prints_values_on_the_server_only() -> None:
    workers, server = output_of({"BYTEPS_SERVER_DEBUG": "1"})
    assert workers == ""
    assert "fc.weight" in server and "other" in server
    _, server = output_of({"BYTEPS_SERVER_DEBUG": "1", "BYTEPS_SERVER_DEBUG_KEY": "other"})
    assert "fc.weight" not in server and "other" in server


def test_key_log_names_every_contribution() -> None:
    _, server = output_of({"PS_KEY_LOG": "1", "BYTEPS_LOG_LEVEL": "INFO"})
    for tensor in ("fc.weight", "other"):
        for rank in (0, 1):
            assert any(
                f"contribution to {tensor}" in line and f"from worker {rank}" in line
                for line in server.splitlines()
            )


def test_verbose_shows_every_frame() -> None:
    workers, server = output_of({"PS_VERBOSE": "2", "BYTEPS_LOG_LEVEL": "INFO"})
    for side in (workers, server):
        assert "PUSH key 0.0 round 0 8 bytes" in side
        assert "RESULT key 0.0 round 0 8 bytes" in side


def one_is_late(rank_that_is_late: int) -> str:
    import numpy as np

    import byteps as bps

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    bps.init()
    if bps.rank() == rank_that_is_late:
        report("late")
        signal.sigtimedwait({signal.SIGUSR1}, 60)
    bps.push_pull(np.ones(10, np.float32), name="fc.weight")
    return "done"


def test_a_wait_says_by_name_whom_it_waits_for() -> None:
    env = {"BYTEPS_STALL_WARN_S": "1"}
    with cluster(one_is_late, workers=3, servers=1, args=(2,), env=env) as job:
        waiting = (job.workers[0], job.workers[1], job.servers[0])
        for process in waiting:
            process.wait_line("waits for")
        job.workers[2].signal(signal.SIGUSR1)
        assert job.wait() == ["done"] * 3
        for process in waiting:
            lines = [line for line in process.output.splitlines() if "waits for" in line]
            assert lines and all("fc.weight" in line and "worker 2 (host" in line for line in lines), (
                job.describe()
            )
        assert "waits for" not in job.workers[2].output


def one_never_comes() -> dict[str, Any]:
    import numpy as np

    import byteps as bps

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    bps.init()
    if bps.rank() == 1:
        signal.sigtimedwait({signal.SIGUSR1}, 60)
        return {}
    try:
        bps.push_pull(np.ones(10, np.float32), name="fc.weight")
    except bps.OperationTimeoutError as error:
        first = str(error)
    try:
        bps.push_pull(np.ones(10, np.float32), name="fc.weight")  # its round is still open elsewhere
    except bps.OperationTimeoutError as error:
        second = str(error)
    report("waited")
    return {"first": first, "second": second}


def test_an_operation_has_a_deadline_and_names_who_it_waited_for() -> None:
    env = {"BYTEPS_STALL_WARN_S": "1", "BYTEPS_OP_TIMEOUT_S": "4"}
    with cluster(one_never_comes, workers=2, servers=1, env=env) as job:
        job.workers[0].wait_report()
        job.workers[1].signal(signal.SIGUSR1)
        result = job.wait()[0]
        for text in result.values():
            assert "fc.weight" in text and "worker 1 (host" in text and "BYTEPS_OP_TIMEOUT_S" in text
