"""Every check of BytePSExecutor, as one driver of a Ray cluster; says ``passed NAME`` for each."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import ray

from byteps.errors import ConfigError, JoinError, PeerLostError
from byteps.ray import BytePSExecutor, RankError


def total(scale: float, *, fail: int = -1, die: int = -1) -> tuple[int, int, float, list[str]]:
    """A sum that shows who was counted; one rank may fail after it, or die."""
    import numpy as np

    import byteps as bps

    bps.init()
    found = float(bps.push_pull(np.full(9, scale * 4.0 ** bps.rank()), average=False, name="x")[0])
    if bps.rank() == fail:
        raise ValueError("a bad batch")
    if bps.rank() == die:
        os._exit(5)
    if max(fail, die) >= 0:
        bps.push_pull(np.ones(9), name="y")  # the others are told who is lost, and why
    secret, leaks = os.environ["BYTEPS_JOB_SECRET"].encode(), []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            leaks += [str(path)] if secret in path.read_bytes() else []
        except OSError:
            continue
    return bps.rank(), bps.size(), found, leaks


def described() -> dict[str, str]:
    """What a program for torchrun reads; not a member of anything."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "EXTRA", "DMLC_NUM_SERVER")
    return {name: os.environ.get(name, "") for name in names}


def raised(executor: BytePSExecutor, kind: type[Exception], *args: Any, **kwargs: Any) -> Any:
    """The exception that a run ends with."""
    try:
        executor.run(total, *args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def free_cpus() -> float:
    return ray.available_resources().get("CPU", 0.0)


def check(servers: int | None) -> None:
    """One executor: several runs, a failure, a run after it, a death, a new start."""
    executor = BytePSExecutor(3, servers, cpus_per_worker=2, env={"EXTRA": "given"})
    assert "not started" in str(raised(executor, ConfigError, [1.0]))
    executor.start()
    executor.start()  # changes nothing
    for scale in (1.0, 2.0):
        assert executor.run(total, [scale]) == [(rank, 3, 21.0 * scale, []) for rank in range(3)]
    seen = executor.run(described)
    assert [each["RANK"] for each in seen] == ["0", "1", "2"] and {each["EXTRA"] for each in seen} == {
        "given"
    }
    assert {each["DMLC_NUM_SERVER"] for each in seen} == {str(servers or 0)}

    error = raised(executor, RankError, [1.0], {"fail": 1})
    assert (error.rank, type(error.__cause__)) == (1, ValueError), repr(error.__cause__)
    assert "rank 1 on " in str(error) and "a bad batch" in str(error)
    assert executor.run(total, kwargs={"scale": 3.0})[2] == (2, 3, 63.0, [])
    assert executor.run_remote(total, [1.0]).result(60)[0] == (0, 3, 21.0, [])

    error = raised(executor, RankError, [1.0], {"die": 2})
    assert error.rank == 2 or isinstance(error.__cause__, PeerLostError), error
    assert "rank 2" in str(error) or "worker 2" in str(error)
    if error.rank == 2:
        assert "actor died" in str(error)
        assert "start() again" in str(raised(executor, ConfigError, [1.0]))
    executor.shutdown()
    executor.shutdown()
    with executor:
        assert executor.run(total, [1.0]) == [(rank, 3, 21.0, []) for rank in range(3)]
    print("passed", f"servers {servers}", flush=True)


def check_nodes() -> None:
    """Ranks on two nodes: two machines, and without being asked for a server on each."""
    with BytePSExecutor(2, strategy="STRICT_SPREAD") as executor:
        assert executor.run(total, [1.0]) == [(rank, 2, 5.0, []) for rank in range(2)]
        seen = executor.run(described)
    assert [each["LOCAL_RANK"] for each in seen] == ["0", "0"]
    assert {each["DMLC_NUM_SERVER"] for each in seen} == {"2"}
    try:
        BytePSExecutor(2, 0, strategy="STRICT_SPREAD").start()
    except ConfigError as error:
        assert "on 2 nodes" in str(error) and "num_servers" in str(error)
        print("passed", "two nodes", flush=True)


def main() -> None:
    """All of them."""
    ray.init(log_to_driver=False, logging_level="ERROR")
    before = free_cpus()
    check_nodes()
    check(None)
    check(2)
    try:
        BytePSExecutor(1000, start_timeout_s=0.5).start()
    except JoinError as error:
        assert "1000 bundles" in str(error) and "free now" in str(error), error
        print("passed", "not enough", flush=True)
    deadline = time.monotonic() + 30.0
    while free_cpus() < before and time.monotonic() < deadline:
        time.sleep(0.1)  # Ray gives back in the background
    assert free_cpus() == before
    print("passed", "given back", flush=True)


if __name__ == "__main__":
    main()
