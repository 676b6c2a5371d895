"""Every option of bpslaunch on every way to launch: it changes something there, or is refused by name."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from byteps.launcher import belongs
from byteps.launcher.belongs import HERE, K8S, NODES, RAY, ROLE, SLURM, SSH, TABLE, option
from byteps.launcher.cli import WAYS, build_parser, main

TESTS = Path(__file__).parents[1]
COMMAND = ["python", "train.py"]
# As Slurm sets them in a step of two nodes with a task each.
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "127.0.0.1,127.0.0.2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
    "BYTEPS_JOB_SECRET": "s",
}
BASES: dict[str, tuple[list[str], dict[str, str]]] = {
    HERE: (["-n", "2"], {}),
    ROLE: ([], {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1"}),
    SSH: (["-H", "a,b"], {}),
    SLURM: (["--slurm"], STEP),
    RAY: (["--ray", "--workers", "2"], {}),
    K8S: (["--k8s", "img:1", "--name", "job1", "--workers", "2"], {}),
    NODES: (["--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1"], {}),
}
VALUES = {
    "nproc": "3",
    "np": "2",
    "env": "A=1",
    "ssh": "ssh -v",
    "hosts": "c,d",
    "nnodes": "2",
    "node_rank": "1",
    "server_nodes": "1",
    "name": "job2",
    "master_addr": "10.0.0.9",
    "scheduler_ip": "10.0.0.9",
    "memory": "3Gi",
    "shm": "3Gi",
    "server_memory": "3Gi",
    "server_hosts": "c",
}
# How a host or a cluster is reached is no part of a plan.
REACH = {"ssh", "ssh_user", "ssh_port", "ray_address", "ray_strategy", "ray_timeout"}
REACH |= {"cpus_per_worker", "gpus_per_worker", "cpus_per_server"}
CHOOSES_THE_WAY = {
    "hosts",
    "hostfile",
    "worker_hostfile",
    "slurm",
    "ray",
    "k8s",
    "nnodes",
    "standalone",
    "np",
}


def written(name: str, folder: Path) -> list[str]:
    (action,) = [each for each in build_parser()._actions if each.dest == name]
    if name == "chdir":
        return [option(name), str(folder)]
    if action.nargs == 0:
        return [option(name)]
    if "hostfile" in name:
        (folder / "hosts").write_text("c slots=1\n")
        return [option(name), str(folder / "hosts")]
    return [option(name), VALUES.get(name, "3")]


def tried(
    words: list[str], env: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    with monkeypatch.context() as patch:
        patch.chdir(".")  # and back
        for name in [name for name in os.environ if name.startswith(("DMLC_", "BYTEPS_", "NVIDIA_"))]:
            patch.delenv(name)
        for name, text in env.items():
            patch.setenv(name, text)
        patch.setattr(os, "environ", os.environ.copy())
        code = main([*words, "--dry-run", *COMMAND])
    said = capsys.readouterr()
    return code, re.sub(r"(secret|BYTEPS_LAUNCH_ID\n *value): .*", "", said.out), said.err


def test_the_table_has_every_option_and_way() -> None:
    dests = {action.dest for action in build_parser()._actions} - {"help", "version", "command"}
    assert set(TABLE) == dests
    assert {way for ways in TABLE.values() for way in ways} == set(BASES) == {HERE, ROLE, *WAYS}
    for name in dests:
        assert any(
            option(name) in each.option_strings for each in build_parser()._actions if each.dest == name
        )


CELLS = [(name, way) for name in TABLE for way in BASES]


REFUSED = [
    (name, way)
    for name, way in CELLS
    if way not in TABLE[name]
    # Those that ask for another way are not out of place where nobody has chosen one.
    and not (way in (HERE, ROLE) and name in CHOOSES_THE_WAY)
    and not (way == ROLE and name in ("workers", "servers"))
]
HONOURED = [
    (name, way)
    for name, way in CELLS
    if way in TABLE[name] and name not in {"dry_run", *CHOOSES_THE_WAY, *REACH}
]


@pytest.mark.parametrize(("name", "way"), REFUSED)
def test_what_a_way_does_not_know_is_refused_by_name(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, env = BASES[way]
    code, out, err = tried([*base, *written(name, tmp_path)], env, monkeypatch, capsys)
    assert code == 2 and not out
    if name in CHOOSES_THE_WAY:
        assert option(name) in err or "different ways to launch" in err
    else:
        assert f"{option(name)} does nothing" in err


@pytest.mark.parametrize(("name", "way"), HONOURED)
def test_what_a_way_knows_changes_something(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, env = BASES[way]
    if name == "node_rank" and way == HERE:  # one machine has the index 0, and another is refused
        code, _, err = tried([*base, "--node-rank", "1"], env, monkeypatch, capsys)
        assert code == 2 and "--node-rank 1" in err
        return
    plain = tried(base, env, monkeypatch, capsys)
    changed = tried([*base, *written(name, tmp_path)], env, monkeypatch, capsys)
    assert plain[0] == changed[0] == 0, (plain, changed)
    assert plain[1] != changed[1]


def test_options_of_ssh_and_ray_are_read() -> None:
    """Their effect needs a host or a cluster; here only that the modules of these ways use them at all."""
    folder = Path(belongs.__file__).parent
    text = "".join((folder / name).read_text() for name in ("ssh.py", "ray_agents.py", "ray_cluster.py"))
    for name in REACH:
        assert f"args.{name}" in text, name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--worker", "2"], "unknown option --worker; did you mean --workers?"),
        (["--sever=2"], "did you mean --servers?"),
        (["--nproc_per_nod", "2"], "did you mean --nproc_per_node?"),
        (["--zzz"], "unknown option --zzz\n"),
        (["--scheduler-port", "70000"], "expected a port"),
    ],
)
def test_unknown_options(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*words, *COMMAND])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-np", "2", "-n", "2"], "-np 2 counts all ranks"),
        (["-np", "2", "--workers", "2"], "-np 2 counts all ranks"),
        (["-np", "0"], "at least 1 rank"),
        (["-np", "3", "-H", "a:2,b:2"], "the hosts have 4 ranks in all"),
        (["-n", "3", "-H", "a:2,b:2"], "-n 3 is for hosts without a number"),
        (["-n", "2", "--env", "RANK=1"], "--env RANK: bpslaunch itself decides"),
        (["-n", "2", "--env", "NOT_SET_HERE"], "NOT_SET_HERE: it is not set here"),
        (["-H", "a", "--env", "WORLD_SIZE=9"], "--env WORLD_SIZE"),
        ([*BASES[K8S][0], "--env", "MY_SECRET=x"], "--env MY_SECRET: everybody could read it"),
        ([*BASES[K8S][0], "--env", "DMLC_ROLE=x"], "--env DMLC_ROLE"),
        (["--scheduler-port", "9000"], "it has no scheduler"),
        (["-n", "2", "--chdir", "/no/such/folder"], "--chdir /no/such/folder: No such file"),
        (["-n", "2", "--cpus", "1"], "--cpus does nothing on this machine"),
        # Also a value that would be the default elsewhere was written by somebody who wanted something.
        (["-n", "2", "--cpus-per-worker", "1"], "--cpus-per-worker does nothing on this machine"),
    ],
)
def test_what_cannot_be_meant_is_said(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = tried(words, {}, monkeypatch, capsys)
    assert code == 2
    assert said in err


def test_np_is_the_number_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["-np", "2"],
        ["--num-proc", "2"],
        ["-np", "2", "-H", "a,b"],
        ["-np", "4", "-H", "a:2,b:2"],
    ):
        code, out, _ = tried(words, {}, monkeypatch, capsys)
        assert code == 0
        assert f"WORLD_SIZE={words[1]}\n" in out


def test_the_line_of_torchrun_for_one_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--standalone --nnodes=1 --node_rank=0 --nproc_per_node=2 --master_addr=localhost --master_port=1234"
    )
    code, out, _ = tried(words.split(), {}, monkeypatch, capsys)
    assert code == 0
    assert out.count("MASTER_ADDR=localhost\n") == out.count("MASTER_PORT=1234\n") == 2


def test_both_commands_know_their_version(capsys: pytest.CaptureFixture[str]) -> None:
    import byteps
    from byteps.tools import cli

    for command, name in ((main, "bpslaunch"), (cli.main, "bps")):
        with pytest.raises(SystemExit) as end:
            command(["--version"])
        assert end.value.code == 0
        assert capsys.readouterr().out == f"{name} {byteps.__version__}\n"
