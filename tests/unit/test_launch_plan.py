"""Which processes bpslaunch starts, with which environment: no process, no socket, no os.environ."""

from __future__ import annotations

import dataclasses

import pytest

from byteps.config import VARIABLES, load
from byteps.errors import ConfigError
from byteps.launcher import rendezvous
from byteps.launcher.dry_run import describe
from byteps.launcher.plan import UNKNOWN, Facts, Options, Plan, ProcessSpec, plan

COMMAND = ("python", "train.py", "--workers", "7")
FACTS = Facts(
    "/usr/bin/python",
    "4711",
    listen_fd="5",
    job_id="id1",
    secret="s3cret",
    launch_id="l7",
    master_port="4712",
)
MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "4712"}
PLACED = {
    "DMLC_PS_ROOT_URI": "10.0.0.1",
    "DMLC_PS_ROOT_PORT": "9000",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
}


def whole(workers: int, servers: int | None = None, environ: dict[str, str] | None = None) -> Plan:
    return plan(Options(COMMAND, workers, servers), environ or {}, FACTS)


def torch_place(rank: int, size: int, local_rank: int, local_size: int, machine: int) -> dict[str, str]:
    """What programs written for torchrun read."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "GROUP_RANK": str(machine),
    }


def labels(made: Plan) -> list[str]:
    return [spec.label for spec in made.processes]


# ---- a whole job on this machine


def test_whole_job_has_a_scheduler_servers_and_workers_in_this_order() -> None:
    made = whole(2, 3)
    assert labels(made) == ["scheduler", "server 0", "server 1", "server 2", "worker 0", "worker 1"]
    assert [spec.role for spec in made.processes] == ["scheduler"] + ["server"] * 3 + ["worker"] * 2
    assert not made.in_process


def test_commands_of_the_roles() -> None:
    scheduler, server, worker = whole(1, 1).processes
    assert scheduler.argv == ("/usr/bin/python", "-m", "byteps.scheduler")
    assert server.argv == ("/usr/bin/python", "-m", "byteps.server")
    assert worker.argv == COMMAND


def test_environment_of_the_roles_is_exactly_this() -> None:
    scheduler, server, _, worker = whole(2, 1).processes
    common = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": "4711",
        "DMLC_NUM_WORKER": "2",
        "DMLC_NUM_SERVER": "1",
        "BYTEPS_JOB_ID": "id1",
        "BYTEPS_JOB_SECRET": "s3cret",
        "BYTEPS_LAUNCH_ID": "l7",
        "PYTHONUNBUFFERED": "1",
    }
    ours = {**common, "PYTHONSAFEPATH": "1"}
    assert scheduler.env == {**ours, "DMLC_ROLE": "scheduler", "BYTEPS_LISTEN_FD": "5"}
    assert server.env == {**ours, "DMLC_ROLE": "server"}
    assert worker.env == {
        **common,
        **MASTER,
        **torch_place(1, 2, 0, 1, 1),
        "DMLC_ROLE": "worker",
        "DMLC_WORKER_ID": "1",
        "BYTEPS_LOCAL_RANK": "0",
        "BYTEPS_LOCAL_SIZE": "1",
    }


def test_every_planned_process_has_a_configuration_without_contradictions() -> None:
    for spec in whole(3, 2, {"DMLC_WORKER_ID": "9", "BYTEPS_LOCAL_SIZE": "4", "HOME": "/"}).processes:
        config = load(spec.environment({"DMLC_WORKER_ID": "9", "BYTEPS_LOCAL_SIZE": "4", "HOME": "/"}))
        config.require_distributed()
        assert config.warnings == ()
        assert config.role == spec.role


def test_the_listening_socket_goes_to_the_scheduler_only() -> None:
    scheduler, *others = whole(2, 1).processes
    assert scheduler.fds == (5,)
    assert all(spec.fds == () and "BYTEPS_LISTEN_FD" not in spec.env for spec in others)


def test_only_the_first_worker_reads_standard_input() -> None:
    assert [spec.label for spec in whole(3, 1).processes if spec.stdin] == ["worker 0"]


def test_what_places_a_process_in_another_job_is_not_inherited() -> None:
    outer = {
        **PLACED,
        "DMLC_ROLE": "worker",
        "DMLC_WORKER_ID": "1",
        "DMLC_NODE_HOST": "10.0.0.7",
        "BYTEPS_GLOBAL_RANK": "5",
        "BYTEPS_LOCAL_SIZE": "8",
        "BYTEPS_JOB_ID": "outer",
        "BYTEPS_JOB_SECRET": "outer secret",
        "BYTEPS_LAUNCH_ID": "outer launch",
        "BYTEPS_PARTITION_BYTES": "8192",
        "PATH": "/bin",
    }
    for spec in whole(2, 1, outer).processes:
        seen = spec.environment(outer)
        assert seen["BYTEPS_JOB_ID"] == "id1" and seen["BYTEPS_JOB_SECRET"] == "s3cret"
        assert seen["BYTEPS_LAUNCH_ID"] == "l7"
        assert seen["DMLC_PS_ROOT_URI"] == "127.0.0.1"
        assert not {"BYTEPS_GLOBAL_RANK", "DMLC_NODE_HOST"} & set(seen)
        assert seen["BYTEPS_PARTITION_BYTES"] == "8192" and seen["PATH"] == "/bin"


def test_an_identity_that_the_user_chose_is_kept() -> None:
    worker = whole(2, 1, {"BYTEPS_JOB_ID": "mine", "BYTEPS_JOB_SECRET": "own"}).processes[-1]
    assert (worker.env["BYTEPS_JOB_ID"], worker.env["BYTEPS_JOB_SECRET"]) == ("mine", "own")
    assert worker.env["BYTEPS_LAUNCH_ID"] == "l7"  # and yet no process of another launch may join
    worker = whole(2, 1, {"BYTEPS_JOB_SECRET_FILE": "/no/such/file"}).processes[-1]
    assert worker.env["BYTEPS_JOB_SECRET_FILE"] == "/no/such/file"  # not read here: plan does no I/O
    assert "BYTEPS_JOB_SECRET" not in worker.env


def test_one_worker_with_servers_is_forced_to_use_them() -> None:
    assert all(spec.env["BYTEPS_FORCE_DISTRIBUTED"] == "1" for spec in whole(1, 1).processes)
    assert all("BYTEPS_FORCE_DISTRIBUTED" not in spec.env for spec in whole(2, 1).processes)


@pytest.mark.parametrize(("workers", "environ", "servers"), [(1, {}, 0), (2, {}, 1), (5, {}, 1)])
def test_servers_by_default(workers: int, environ: dict[str, str], servers: int) -> None:
    assert [spec.role for spec in whole(workers, None, environ).processes].count("server") == servers


def test_one_worker_gets_a_server_by_default_when_the_environment_forces_it() -> None:
    assert labels(whole(1, None, {"BYTEPS_FORCE_DISTRIBUTED": "1"})) == ["scheduler", "server 0", "worker 0"]


def test_one_worker_without_servers_is_a_job_of_one() -> None:
    made = whole(1, 0, PLACED)
    (worker,) = made.processes
    assert "job of one" in made.note
    assert not load(worker.environment(PLACED)).distributed


def test_the_users_choice_of_buffering_is_kept() -> None:
    assert "PYTHONUNBUFFERED" not in whole(2, 1, {"PYTHONUNBUFFERED": ""}).processes[-1].env


# ---- one role of a job


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_service_runs_in_the_launchers_own_process(role: str) -> None:
    made = plan(Options(COMMAND), {**PLACED, "DMLC_ROLE": role}, FACTS)
    assert made.in_process
    (spec,) = made.processes
    assert (spec.label, spec.argv[-1], spec.env) == (role, f"byteps.{role}", {})


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_service_is_not_needed_with_one_worker(role: str) -> None:
    made = plan(Options(), {"DMLC_ROLE": role, "DMLC_NUM_WORKER": "1", "BYTEPS_LOCAL_SIZE": "4"}, FACTS)
    assert made.processes == ()
    assert f"no {role} is needed: DMLC_NUM_WORKER=1" in made.note
    forced = {**PLACED, "DMLC_ROLE": role, "DMLC_NUM_WORKER": "1", "BYTEPS_FORCE_DISTRIBUTED": "1"}
    assert plan(Options(), forced, FACTS).in_process


def test_a_worker_has_one_rank_by_default() -> None:
    environ = {**PLACED, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1"}
    (spec,) = plan(Options(COMMAND), environ, FACTS).processes
    assert (spec.label, spec.argv, spec.stdin, spec.drop) == ("worker 1", COMMAND, True, frozenset())
    place = {"DMLC_WORKER_ID": "1", "BYTEPS_LOCAL_RANK": "0", "BYTEPS_LOCAL_SIZE": "1"}
    assert spec.env == place | torch_place(1, 2, 0, 1, 1)
    assert load(spec.environment(environ)).root_uri == "10.0.0.1"


@pytest.mark.parametrize(
    ("devices", "size"), [("0,1,2", 3), ("GPU-a,GPU-b", 2), ("3", 1), ("all", 1), ("none", 1), ("", 1)]
)
def test_visible_devices_are_the_local_ranks(devices: str, size: int) -> None:
    environ = {**PLACED, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1", "NVIDIA_VISIBLE_DEVICES": devices}
    specs = plan(Options(COMMAND), environ, FACTS).processes
    assert [spec.env["BYTEPS_LOCAL_RANK"] for spec in specs] == [str(rank) for rank in range(size)]
    assert {spec.env["BYTEPS_LOCAL_SIZE"] for spec in specs} == {str(size)}
    assert [spec.stdin for spec in specs] == [True] + [False] * (size - 1)
    assert [spec.label for spec in specs] == [f"worker {size + rank}" for rank in range(size)]


def test_ranks_of_a_worker_machine_that_were_asked_for() -> None:
    environ = {**PLACED, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1", "NVIDIA_VISIBLE_DEVICES": "0,1,2"}
    made = plan(Options(COMMAND, nproc=2), environ, FACTS)
    assert labels(made) == ["worker 2", "worker 3"]
    given = {"BYTEPS_JOB_ID", "BYTEPS_LAUNCH_ID"}  # one machine of several: another launcher has the rest
    assert all(spec.fds == () and not given & set(spec.env) for spec in made.processes)
    assert labels(plan(Options(COMMAND, nproc=1), environ, FACTS)) == ["worker 1"]


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_a_service_has_no_ranks(role: str) -> None:
    assert plan(Options(COMMAND, nproc=4), {**PLACED, "DMLC_ROLE": role}, FACTS).in_process


# ---- several ranks on this machine and nothing else

SERVERLESS = {
    "asked for by number": (Options(COMMAND, nproc=3), {}),
    "one machine without servers": (Options(COMMAND, 1, 0, 3), {}),
    "one machine, nothing said of servers": (Options(COMMAND, 1, None, 3), {"DMLC_ROLE": "worker"}),
    "by devices": (
        Options(COMMAND),
        {
            "DMLC_ROLE": "worker",
            "DMLC_NUM_WORKER": "1",
            "NVIDIA_VISIBLE_DEVICES": "0,1,2",
            "DMLC_PS_ROOT_URI": "10.0.0.1",
            "DMLC_PS_ROOT_PORT": "9000",
            "DMLC_NUM_SERVER": "2",
        },
    ),
    "by number over devices": (
        Options(COMMAND, nproc=3),
        {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "NVIDIA_VISIBLE_DEVICES": "0,1"},
    ),
}
EACH_WAY = pytest.mark.parametrize(
    ("options", "environ"), list(SERVERLESS.values()), ids=list(SERVERLESS.keys())
)


@EACH_WAY
def test_a_serverless_job_has_ranks_only(options: Options, environ: dict[str, str]) -> None:
    made = plan(options, environ, FACTS)
    assert labels(made) == ["worker 0", "worker 1", "worker 2"]
    assert {spec.role for spec in made.processes} == {"worker"}
    assert [spec.stdin for spec in made.processes] == [True, False, False]
    assert "3 ranks on this machine" in made.note and not made.in_process


@EACH_WAY
def test_environment_of_a_serverless_job_is_exactly_this(options: Options, environ: dict[str, str]) -> None:
    first, *others = plan(options, environ, FACTS).processes
    common = {
        "DMLC_ROLE": "worker",
        "DMLC_NUM_WORKER": "1",
        "DMLC_NUM_SERVER": "0",
        "DMLC_WORKER_ID": "0",
        "BYTEPS_LOCAL_SIZE": "3",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": "4711",
        "BYTEPS_JOB_ID": "id1",
        "BYTEPS_JOB_SECRET": "s3cret",
        "BYTEPS_LAUNCH_ID": "l7",
        "PYTHONUNBUFFERED": "1",
        **MASTER,
    }
    first_place = {"BYTEPS_LOCAL_RANK": "0", "BYTEPS_LISTEN_FD": "5"}
    assert first.env == common | first_place | torch_place(0, 3, 0, 3, 0)
    assert first.fds == (5,)
    for rank, spec in enumerate(others, 1):
        assert spec.env == common | {"BYTEPS_LOCAL_RANK": str(rank)} | torch_place(rank, 3, rank, 3, 0)
        assert spec.fds == ()


@EACH_WAY
@pytest.mark.parametrize("more", [{}, {"BYTEPS_ENABLE_IPC": "0"}, {"BYTEPS_ENABLE_ASYNC": "1"}])
def test_every_rank_of_a_serverless_job_has_a_configuration_without_contradictions(
    options: Options, environ: dict[str, str], more: dict[str, str]
) -> None:
    for spec in plan(options, environ | more, FACTS).processes:
        config = load(spec.environment(environ | more))
        config.check()
        assert config.serverless and config.needs_own_server == bool(more)
        assert config.num_server == len(more) and config.warnings == ()


def test_the_note_says_what_rank_0_starts() -> None:
    made = plan(Options(COMMAND, nproc=2), {}, FACTS)
    assert describe(made, {}).startswith(
        "# 2 ranks on this machine; rank 0 starts their scheduler\n[worker 0] "
    )
    for name, value in (("BYTEPS_ENABLE_IPC", "0"), ("BYTEPS_ENABLE_ASYNC", "1")):
        assert (
            f"one server, because of {name}={value}"
            in plan(Options(COMMAND, nproc=2), {name: value}, FACTS).note
        )


@pytest.mark.parametrize("options", [Options(COMMAND, nproc=1), Options(COMMAND, 1, 0, 1)])
def test_one_rank_is_a_job_of_one(options: Options) -> None:
    made = plan(options, {"NVIDIA_VISIBLE_DEVICES": "0,1"}, FACTS)
    (spec,) = made.processes
    assert "job of one" in made.note and spec.fds == ()
    assert not load(spec.environment({"BYTEPS_LOCAL_SIZE": "4"})).distributed


# ---- several machines of several ranks


def test_machines_of_several_ranks() -> None:
    made = plan(Options(COMMAND, 2, 2, 2), {}, FACTS)
    assert labels(made) == [
        *("scheduler", "server 0", "server 1"),
        *("worker 0", "worker 1", "worker 2", "worker 3"),
    ]
    places = [
        tuple(spec.env[name] for name in ("DMLC_WORKER_ID", "BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE"))
        for spec in made.processes[3:]
    ]
    assert places == [("0", "0", "2"), ("0", "1", "2"), ("1", "0", "2"), ("1", "1", "2")]
    assert [spec.label for spec in made.processes if spec.stdin] == ["worker 0"]
    assert [spec.label for spec in made.processes if spec.fds] == ["scheduler"]
    for spec in made.processes:
        load(spec.environment({})).require_distributed()


def test_machines_may_differ() -> None:
    made = plan(Options(COMMAND, 2, 1, (2, 1)), {}, FACTS)
    assert labels(made)[2:] == ["worker 0", "worker 1", "worker 2"]


@pytest.mark.parametrize(
    ("options", "environ"),
    [
        (Options(COMMAND, 1, 1, 2), {}),
        (Options(COMMAND, None, 1, 2), {}),
        (Options(COMMAND, nproc=2), {"BYTEPS_FORCE_DISTRIBUTED": "1"}),
    ],
)
def test_one_machine_with_servers_is_forced_to_use_them(options: Options, environ: dict[str, str]) -> None:
    made = plan(options, environ, FACTS)
    assert labels(made) == ["scheduler", "server 0", "worker 0", "worker 1"]
    for spec in made.processes:
        config = load(spec.environment(environ))
        assert config.force_distributed and not config.serverless and config.num_server == 1


# ---- a job of one


def test_a_command_alone_is_a_job_of_one() -> None:
    made = plan(Options(COMMAND), {"BYTEPS_LOCAL_SIZE": "4", "NVIDIA_VISIBLE_DEVICES": "0,1"}, FACTS)
    (spec,) = made.processes
    assert "job of one" in made.note
    assert (spec.argv, spec.stdin) == (COMMAND, True)
    config = load(spec.environment({"BYTEPS_LOCAL_SIZE": "4"}))
    assert (config.role, config.num_worker, config.local_size, config.distributed) == ("worker", 1, 1, False)


# ---- what torch.distributed reads


def torch_places(options: Options, environ: dict[str, str]) -> list[list[str]]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    specs = plan(options, environ, FACTS).processes
    return [[spec.env[name] for name in names] for spec in specs if spec.role == "worker"]


def test_machines_may_have_different_numbers_of_ranks() -> None:
    assert torch_places(Options(COMMAND, 2, 1, (2, 1)), {}) == [
        ["0", "3", "0", "2", "0"],
        ["1", "3", "1", "2", "0"],
        ["2", "3", "0", "1", "1"],
    ]


def test_a_machine_of_a_larger_job_takes_the_others_to_be_alike() -> None:
    environ = {**PLACED, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "1", "MASTER_ADDR": "10.0.0.2"}
    assert torch_places(Options(COMMAND, nproc=2), environ) == [
        ["2", "4", "0", "2", "1"],
        ["3", "4", "1", "2", "1"],
    ]
    for spec in plan(Options(COMMAND, nproc=2), environ, FACTS).processes:
        assert spec.environment(environ)["MASTER_ADDR"] == "10.0.0.2"  # the user's, who knows it


def test_a_job_of_one_has_a_place_whatever_the_index_of_its_machine() -> None:
    alone = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_WORKER_ID": "3"}
    for environ in ({}, alone, {"RANK": "7", "WORLD_SIZE": "8", "TORCHELASTIC_USE_AGENT_STORE": "True"}):
        assert torch_places(Options(COMMAND), environ) == [["0", "1", "0", "1", "0"]]
    (spec,) = plan(Options(COMMAND), environ, FACTS).processes
    seen = spec.environment(environ)
    assert seen["MASTER_PORT"] == "4712" and "TORCHELASTIC_USE_AGENT_STORE" not in seen


# ---- wrong use: every message names what is wrong and what to do


@pytest.mark.parametrize(
    ("options", "environ", "words"),
    [
        (Options(), {}, ["nothing to run", "COMMAND"]),
        (Options((), 2, 1), {}, ["nothing to run", "--workers 2"]),
        (Options(COMMAND, 0, 1), {}, ["--workers 0", "at least 1"]),
        (Options(COMMAND, 1, -1), {}, ["--servers -1"]),
        (Options(COMMAND, 2, 0), {}, ["--servers 0", "--servers 1"]),
        (Options(COMMAND, 1, 0), {"BYTEPS_FORCE_DISTRIBUTED": "1"}, ["--servers 0", "--servers 1"]),
        (Options(COMMAND, None, 1), {}, ["--servers needs --workers"]),
        (Options((), nproc=2), {}, ["nothing to run", "--nproc 2"]),
        (Options(COMMAND, nproc=0), {}, ["--nproc 0", "at least 1 rank"]),
        (Options(COMMAND, 2, 1, -1), {}, ["--nproc -1", "at least 1 rank"]),
        (Options(COMMAND, 0, 1, 2), {}, ["--workers 0", "at least 1"]),
        (Options(COMMAND, 2, 1, (2, 1, 1)), {}, ["--nproc 2, 1, 1", "2 machines"]),
        (Options(COMMAND, nproc=2), {**PLACED}, ["DMLC_ROLE is not set", "unset", "this machine alone"]),
        (Options(COMMAND, nproc=0), {**PLACED, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0"}, ["--nproc 0"]),
        (
            Options(COMMAND, 1, 0, 2),
            {"BYTEPS_FORCE_DISTRIBUTED": "1"},
            ["FORCE_DISTRIBUTED=1", "--servers 1"],
        ),
        (Options(), {**PLACED, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": "0"}, ["nothing to run", "worker"]),
        (Options(COMMAND), {"DMLC_ROLE": "worker"}, ["DMLC_NUM_WORKER is not set", "set it to"]),
        (Options(), {"DMLC_ROLE": "server"}, ["DMLC_NUM_WORKER is not set", "DMLC_ROLE=server"]),
        (Options(), {"DMLC_ROLE": "scheduler", "DMLC_NUM_WORKER": ""}, ["DMLC_NUM_WORKER is not set"]),
        (Options(COMMAND), {"DMLC_ROLE": "boss"}, ["DMLC_ROLE='boss'", "worker, server, scheduler"]),
        (Options(COMMAND), {**PLACED}, ["DMLC_ROLE is not set", "DMLC_PS_ROOT_URI=10.0.0.1", "unset"]),
        (Options(COMMAND), {"DMLC_NUM_WORKER": "2"}, ["DMLC_ROLE is not set", "DMLC_NUM_WORKER=2"]),
        (Options(COMMAND), {**PLACED, "DMLC_ROLE": "worker"}, ["DMLC_WORKER_ID is not set", "from 0 to 1"]),
        (Options(COMMAND), {"BYTEPS_PARTITION_BYTES": "x"}, ["BYTEPS_PARTITION_BYTES='x'"]),
        (Options(COMMAND, 2, 1), {"BYTEPS_PARTITION_BYTES": "x"}, ["BYTEPS_PARTITION_BYTES='x'"]),
    ],
)
def test_wrong_use_is_said(options: Options, environ: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(options, environ, FACTS)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
@pytest.mark.parametrize("missing", ["DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER"])
def test_a_missing_variable_is_named(role: str, missing: str) -> None:
    environ = {**PLACED, "DMLC_ROLE": role, "DMLC_WORKER_ID": "0"}
    del environ[missing]
    with pytest.raises(ConfigError, match=rf"{missing} is .*set it to"):
        plan(Options(COMMAND), environ, FACTS)


# ---- dry run


def test_dry_run_shows_every_process_and_hides_secrets() -> None:
    environ = {
        "BYTEPS_PARTITION_BYTES": "8192",
        "PATH": "/bin",
        "PS_VERBOSE": "1",
        "BYTEPS_JOB_SECRETS": "typo",
    }
    text = describe(whole(2, 1, environ), environ)
    for spec in whole(2, 1, environ).processes:
        assert f"[{spec.label}] " in text
    assert "[worker 1] python train.py --workers 7\n" in text
    assert text.count("BYTEPS_PARTITION_BYTES=8192") == 4 and text.count("PS_VERBOSE=1") == 4
    assert text.count("BYTEPS_JOB_SECRET=********") == 4
    assert "s3cret" not in text and "typo" not in text and "PATH=/bin" not in text


def test_dry_run_quotes_the_command_and_gives_the_note() -> None:
    made = plan(Options(("sh", "-c", "echo a b")), {}, UNKNOWN)
    assert describe(made, {}).startswith("# a job of one")
    assert "[worker 0] sh -c 'echo a b'" in describe(made, {})


def test_a_secret_is_not_in_the_representation_of_facts() -> None:
    assert "s3cret" not in repr(FACTS)


def test_all_names_that_the_launcher_sets_are_known_variables() -> None:
    python_names = {"PYTHONUNBUFFERED", "PYTHONSAFEPATH"}
    serverless = plan(Options(COMMAND, nproc=2), {}, FACTS)
    for spec in (*whole(1, 1).processes, *serverless.processes):
        assert set(spec.env) - python_names - rendezvous.NAMES <= set(VARIABLES)
        assert set(spec.drop) - rendezvous.NAMES <= set(VARIABLES)


def test_a_spec_is_a_value() -> None:
    spec = ProcessSpec("worker 0", "worker", ("true",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.label = "other"  # type: ignore[misc]
    assert spec.environment({"A": "1"}) == {"A": "1"}
