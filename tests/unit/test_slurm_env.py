"""Roles of tasks, from recorded environments of Slurm; and the key of a user."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteps.config import load
from byteps.errors import ConfigError
from byteps.launcher import user_key
from byteps.launcher.share import plan_share
from byteps.launcher.slurm_env import counts, expand, in_step, share_of
from byteps.launcher.spec import UNKNOWN

# As Slurm 22.05 sets them in a step of 3 nodes, started by: srun -N3 --ntasks-per-node=2
STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[08-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)",
    "SLURM_JOB_NODELIST": "gpu[08-12]",  # of the allocation, not of the step
    "SLURM_TASKS_PER_NODE": "2(x5)",
}


def task(node: int, local: int, **more: str) -> dict[str, str]:
    return {**STEP, "SLURM_NODEID": str(node), "SLURM_LOCALID": str(local), **more}


def labels(environ: dict[str, str], **options: int) -> list[str]:
    found = plan_share(share_of(environ, secret="s3cret", **options), ("train",), environ, UNKNOWN)
    for spec in found.processes:
        config = load({**spec.environment(environ), "BYTEPS_LISTEN_FD": ""})
        config.check()
    return [spec.label for spec in found.processes]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("a,b[1-2]-ib,c", ["a", "b1-ib", "b2-ib", "c"]),
        ("r[1-2]n[0,3]", ["r1n0", "r1n3", "r2n0", "r2n3"]),
        ("ip-10-0-0-1,ip-10-0-0-2", ["ip-10-0-0-1", "ip-10-0-0-2"]),
    ],
)
def test_lists_of_nodes(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["", "n[1", "n[a-b]", "n[3-1]", "n]1["])
def test_lists_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="does not parse"):
        expand(text)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=20))
def test_counts_of_tasks(tasks: list[int]) -> None:
    assert counts(",".join(map(str, tasks))) == tasks
    assert counts(f"{tasks[0]}(x{len(tasks)})") == [tasks[0]] * len(tasks)


def test_counts_that_are_none() -> None:
    with pytest.raises(ConfigError, match=r"2\(y3\)"):
        counts("2(y3)")


def test_every_node_has_a_server_and_the_first_the_scheduler() -> None:
    assert labels(task(0, 0)) == ["scheduler", "server 0", "worker 0"]
    assert labels(task(0, 1)) == ["worker 1"]
    assert labels(task(2, 0)) == ["server 2", "worker 4"]
    assert labels(task(2, 1)) == ["worker 5"]


def test_servers_are_dealt_over_nodes() -> None:
    dealt = [labels(task(node, 0), servers=5) for node in range(3)]
    assert [[name for name in names if "server" in name] for names in dealt] == [
        ["server 0", "server 3"],
        ["server 1", "server 4"],
        ["server 2"],
    ]


def test_nodes_for_servers() -> None:
    assert labels(task(0, 0), server_nodes=1) == ["scheduler", "worker 0"]
    assert labels(task(2, 0), server_nodes=1) == ["server 0"]
    assert labels(task(2, 1), server_nodes=1) == ["server 1"]
    alone = share_of(task(0, 1), server_nodes=2)
    assert (alone.servers, alone.sizes) == (4, (2,))


def test_several_ranks_of_a_task() -> None:
    assert labels(task(1, 1), nproc=2) == ["worker 6", "worker 7"]
    assert share_of(task(1, 1), nproc=2).sizes == (4, 4, 4)


def test_uneven_nodes_have_ranks_in_order_of_nodes() -> None:
    environ = task(1, 0, SLURM_STEP_TASKS_PER_NODE="3,1(x2)")
    (spec,) = [
        spec
        for spec in plan_share(share_of(environ), ("train",), environ, UNKNOWN).processes
        if spec.role == "worker"
    ]
    assert (spec.env["RANK"], spec.env["WORLD_SIZE"], spec.env["LOCAL_WORLD_SIZE"]) == ("3", "5", "1")


def test_one_node_is_a_job_without_servers() -> None:
    one = {"SLURM_STEP_NODELIST": "gpu08", "SLURM_STEP_TASKS_PER_NODE": "4"}
    assert labels(task(0, 0, **one)) == ["worker 0"]
    share = share_of(task(0, 2, **one))
    assert (share.root_uri, share.servers, share.scheduler) == ("127.0.0.1", 0, False)
    assert labels(task(0, 0, **one), servers=1) == ["scheduler", "server 0", "worker 0"]


def test_all_tasks_agree() -> None:
    shares = [share_of(task(node, local)) for node in range(3) for local in range(2)]
    assert len({(s.root_uri, s.root_port, s.master_port, s.job_id, s.servers, s.sizes) for s in shares}) == 1
    assert {s.launch_id for s in shares} == {"slurm-4711-0-0"}
    assert share_of(task(0, 0, SLURM_RESTART_COUNT="1")).launch_id == "slurm-4711-0-1"
    assert shares[0].root_uri == "gpu08" and sum(s.scheduler for s in shares) == 1
    started = [k for s in shares for k in s.own_servers]
    assert sorted(started) == list(range(shares[0].servers))


def test_ports() -> None:
    ports = {share_of(task(0, 0, SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step))).root_port
             for job in range(20) for step in range(5)}  # fmt: skip
    assert len(ports) > 95 and all(12_000 <= port < 28_000 and port % 2 == 0 for port in ports)
    own = share_of(task(0, 0, DMLC_PS_ROOT_PORT="9000"))
    assert (own.root_port, own.master_port) == (9000, 9001)
    reserved = share_of(task(0, 0, SLURM_STEP_RESV_PORTS="14000-14003"))
    assert (reserved.root_port, reserved.master_port) == (14000, 14003)


def test_a_secret_is_no_part_of_what_is_shown() -> None:
    assert "s3cret" not in repr(share_of(task(0, 0), secret="s3cret"))


@pytest.mark.parametrize(
    ("environ", "options", "word"),
    [
        ({**STEP}, {}, "SLURM_NODEID is not set; start the command with srun"),
        (task(3, 0), {}, "is not in a step"),
        (task(0, 0), {"server_nodes": 3}, "--server-nodes 3"),
        (task(0, 0), {"server_nodes": 1, "servers": 1}, "keep one"),
        (task(0, 0), {"servers": 0}, "at least 1"),
        (task(0, 0, SLURM_STEP_TASKS_PER_NODE="2"), {}, "names 1 nodes"),
    ],
)
def test_what_is_wrong_is_said(environ: dict[str, str], options: dict[str, int], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        share_of(environ, **options)


def test_a_batch_script_is_not_a_step() -> None:
    batch = {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "2(x3)"}
    assert not in_step(batch) and in_step(task(0, 0))


# ---- the key


def test_a_key_is_made_once_and_makes_another_secret_for_every_job(tmp_path: Path) -> None:
    path = user_key.path_of({"XDG_CONFIG_HOME": str(tmp_path)})
    found: list[str] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait(10)
        found.append(user_key.secret_for("job 1", path))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 8 and len(set(found)) == 1
    assert [each.name for each in path.parent.iterdir()] == ["job-key"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert user_key.secret_for("job 2", path) != found[0]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job-key"
    path.write_text("0" * 64)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        user_key.secret_for("x", path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ConfigError, match="too short"):
        user_key.secret_for("x", path)
    with pytest.raises(ConfigError, match="BYTEPS_JOB_SECRET_FILE"):
        user_key.secret_for("x", path / "below a file" / "job-key")
