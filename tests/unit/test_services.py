"""What rank 0 of a job on one machine starts, with which environment: nothing is started here."""

from __future__ import annotations

import pytest

from byteps.config import load
from byteps.worker.services import Command, commands

RANK = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "1",
    "DMLC_NUM_SERVER": "0",
    "DMLC_WORKER_ID": "0",
    "DMLC_PS_ROOT_URI": "127.0.0.1",
    "DMLC_PS_ROOT_PORT": "4711",
    "BYTEPS_LOCAL_RANK": "0",
    "BYTEPS_LOCAL_SIZE": "2",
    "BYTEPS_JOB_ID": "id1",
    "BYTEPS_LISTEN_FD": "5",
    "PATH": "/bin",
}


def made(**changes: str) -> list[Command]:
    environ = {**RANK, **changes}
    return commands(load(environ), environ, "/usr/bin/python")


@pytest.mark.parametrize(
    ("changes", "roles"),
    [
        ({}, ["scheduler"]),
        ({"BYTEPS_ENABLE_IPC": "0"}, ["scheduler", "server"]),
        ({"BYTEPS_ENABLE_ASYNC": "1"}, ["scheduler", "server"]),
        ({"BYTEPS_LOCAL_RANK": "1"}, []),
        ({"BYTEPS_LOCAL_RANK": "1", "BYTEPS_ENABLE_IPC": "0"}, []),
        ({"BYTEPS_LOCAL_SIZE": "1"}, []),
        ({"DMLC_NUM_WORKER": "2"}, []),
        ({"BYTEPS_FORCE_DISTRIBUTED": "1"}, []),
    ],
)
def test_who_starts_what(changes: dict[str, str], roles: list[str]) -> None:
    assert [command.role for command in made(**changes)] == roles


def test_the_scheduler_has_our_environment_and_the_socket() -> None:
    (scheduler,) = made()
    assert scheduler.argv == ("/usr/bin/python", "-m", "byteps.scheduler")
    assert scheduler.env == {**RANK, "DMLC_ROLE": "scheduler", "PYTHONSAFEPATH": "1"}
    assert scheduler.fds == (5,)


def test_the_scheduler_speaks_through_our_pipe_to_the_launcher() -> None:
    (scheduler,) = made(BYTEPS_BLAME="7:1234")
    assert scheduler.env["BYTEPS_BLAME"] == "7:1234"


def test_without_an_inherited_socket_the_scheduler_binds_its_address() -> None:
    environ = {name: text for name, text in RANK.items() if name != "BYTEPS_LISTEN_FD"}
    (scheduler,) = commands(load(environ), environ, "python")
    assert scheduler.fds == () and "BYTEPS_LISTEN_FD" not in scheduler.env


def test_a_server_is_counted_and_has_no_socket() -> None:
    scheduler, server = made(BYTEPS_ENABLE_ASYNC="1", BYTEPS_STARTER_FD="9")
    assert server.argv == ("/usr/bin/python", "-m", "byteps.server")
    assert (server.env["DMLC_ROLE"], server.fds) == ("server", ())
    assert "BYTEPS_LISTEN_FD" not in server.env and "BYTEPS_STARTER_FD" not in server.env
    for command in (scheduler, server):
        config = load(command.env)
        config.require_distributed()
        assert (config.num_server, config.serverless, config.warnings) == (1, True, ())
