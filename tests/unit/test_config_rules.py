"""What follows from several variables: contradictions, unknown names, spellings, secrets, warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from byteps.config import load
from byteps.errors import ConfigError

WORKER = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
    "DMLC_WORKER_ID": "1",
    "DMLC_PS_ROOT_URI": "10.0.0.1",
    "DMLC_PS_ROOT_PORT": "1234",
}


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in WORKER.items() if name not in names}


def test_a_job_of_one_needs_nothing() -> None:
    config = load({})
    config.check()
    assert not config.distributed


def test_a_complete_worker_is_fine() -> None:
    config = load(WORKER)
    config.check()
    config.require_distributed()
    assert config.distributed


@pytest.mark.parametrize(
    ("environ", "distributed"),
    [
        ({"DMLC_NUM_WORKER": "1"}, False),
        ({"DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}, False),
        ({"DMLC_NUM_WORKER": "2"}, True),
        ({"BYTEPS_LOCAL_SIZE": "2"}, True),
        ({"BYTEPS_FORCE_DISTRIBUTED": "1"}, True),
    ],
)
def test_distributed(environ: dict[str, str], distributed: bool) -> None:
    assert load(environ).distributed is distributed


@pytest.mark.parametrize(
    ("environ", "grouped", "serverless", "needs_own_server"),
    [
        ({}, True, False, False),
        ({"BYTEPS_LOCAL_SIZE": "2"}, True, True, False),
        ({"BYTEPS_LOCAL_SIZE": "2", "BYTEPS_ENABLE_IPC": "0"}, False, True, True),
        ({"BYTEPS_LOCAL_SIZE": "2", "BYTEPS_ENABLE_ASYNC": "1"}, False, True, True),
        ({"BYTEPS_LOCAL_SIZE": "2", "BYTEPS_FORCE_DISTRIBUTED": "1"}, True, False, False),
        ({"BYTEPS_LOCAL_SIZE": "2", "DMLC_NUM_WORKER": "2"}, True, False, False),
        ({"BYTEPS_ENABLE_IPC": "0"}, False, False, False),
    ],
)
def test_how_ranks_of_one_machine_work_together(
    environ: dict[str, str], grouped: bool, serverless: bool, needs_own_server: bool
) -> None:
    config = load(environ)
    assert config.grouped is grouped
    assert config.serverless is serverless
    assert config.needs_own_server is needs_own_server


@pytest.mark.parametrize("said", ["0", "1", "7"])
def test_the_number_of_servers_of_a_serverless_job_is_its_own(said: str) -> None:
    environ = {"BYTEPS_LOCAL_SIZE": "2", "DMLC_NUM_SERVER": said}
    assert load(environ).num_server == 0
    assert load(environ | {"BYTEPS_ENABLE_IPC": "0"}).num_server == 1
    assert load(environ | {"BYTEPS_FORCE_DISTRIBUTED": "1"}).num_server == int(said)


@pytest.mark.parametrize("role", ["worker", "server", "scheduler"])
@pytest.mark.parametrize("more", [{}, {"BYTEPS_ENABLE_ASYNC": "1"}])
def test_a_complete_serverless_job_is_fine(role: str, more: dict[str, str]) -> None:
    environ = without("DMLC_NUM_SERVER", "DMLC_WORKER_ID") | {"DMLC_NUM_WORKER": "1", "DMLC_ROLE": role}
    load(environ | {"BYTEPS_LOCAL_SIZE": "2"} | more).require_distributed()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"BYTEPS_LOCAL_SIZE": "3"}, ("DMLC_PS_ROOT_URI", "BYTEPS_LOCAL_SIZE=3", "bpslaunch -n 3")),
        (
            {"BYTEPS_LOCAL_SIZE": "3", "DMLC_PS_ROOT_URI": "127.0.0.1"},
            ("DMLC_PS_ROOT_PORT", "BYTEPS_LOCAL_SIZE=3", "bpslaunch -n 3"),
        ),
        (without("DMLC_PS_ROOT_URI"), ("DMLC_PS_ROOT_URI", "DMLC_NUM_WORKER=2", "scheduler's address")),
        (without("DMLC_PS_ROOT_PORT"), ("DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER=2", "scheduler's port")),
        (without("DMLC_NUM_SERVER"), ("DMLC_NUM_SERVER is 0", "DMLC_NUM_WORKER=2", "at least 1")),
        (without("DMLC_WORKER_ID"), ("DMLC_WORKER_ID", "DMLC_NUM_WORKER=2", "from 0 to 1")),
        (without("DMLC_WORKER_ID", "DMLC_ROLE"), ("DMLC_WORKER_ID", "DMLC_NUM_WORKER=2", "from 0 to 1")),
        (WORKER | {"DMLC_WORKER_ID": "2"}, ("DMLC_WORKER_ID=2", "DMLC_NUM_WORKER=2", "count from 0")),
        ({"BYTEPS_LOCAL_RANK": "1"}, ("BYTEPS_LOCAL_RANK=1", "BYTEPS_LOCAL_SIZE=1", "count from 0")),
        ({"DMLC_ENABLE_RDMA": "1"}, ("DMLC_ENABLE_RDMA=1", "compiled in", "set it to 0")),
        (
            {"PS_HEARTBEAT_INTERVAL": "5", "PS_HEARTBEAT_TIMEOUT": "5"},
            ("PS_HEARTBEAT_INTERVAL=5", "PS_HEARTBEAT_TIMEOUT=5", "raise"),
        ),
        (
            {"BYTEPS_TRACE_START_STEP": "30"},
            ("BYTEPS_TRACE_START_STEP=30", "BYTEPS_TRACE_END_STEP=20", "later"),
        ),
        ({"BYTEPS_JOIN": "1", "BYTEPS_ENABLE_ASYNC": "1"}, ("BYTEPS_JOIN=1", "BYTEPS_ENABLE_ASYNC=1")),
    ],
)
def test_a_contradiction_names_both_and_the_remedy(environ: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ).check()
    assert len(str(caught.value).splitlines()) == 1
    for word in words:
        assert word in str(caught.value)


def test_all_contradictions_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"DMLC_NUM_WORKER": "2", "DMLC_ROLE": "worker"}).check()
    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        "DMLC_PS_ROOT_URI",
        "DMLC_PS_ROOT_PORT",
        "DMLC_NUM_SERVER",
        "DMLC_WORKER_ID",
    ]


@pytest.mark.parametrize("role", ["server", "scheduler"])
def test_only_workers_need_a_worker_id(role: str) -> None:
    load(without("DMLC_WORKER_ID") | {"DMLC_ROLE": role}).check()


def test_the_scheduler_needs_no_port_when_it_inherits_a_socket() -> None:
    environ = without("DMLC_PS_ROOT_PORT", "DMLC_WORKER_ID") | {"DMLC_ROLE": "scheduler"}
    load(environ | {"BYTEPS_LISTEN_FD": "3"}).check()
    with pytest.raises(ConfigError, match="DMLC_PS_ROOT_PORT"):
        load(environ).check()


def test_a_server_process_checks_even_where_the_job_is_not_distributed() -> None:
    with pytest.raises(ConfigError, match="a server with servers needs it"):
        load({"DMLC_ROLE": "server"}).require_distributed()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("BYTEPS_PARTITION_BYTE", "BYTEPS_PARTITION_BYTES"),
        ("DMLC_NUM_WORKERS", "DMLC_NUM_WORKER"),
        ("DMLC_ROOT_URI", "DMLC_PS_ROOT_URI"),
        ("BYTEPS_LOGLEVEL", "BYTEPS_LOG_LEVEL"),
    ],
)
def test_an_unknown_name_is_a_warning_with_the_nearest_name(name: str, near: str) -> None:
    assert load({name: "1"}).warnings == (f"{name} is set but is not a known variable; did you mean {near}?",)


def test_an_unknown_name_like_no_other_points_at_the_list() -> None:
    (text,) = load({"DMLC_QQQQQQQQQQQQQQQQ": "1"}).warnings
    assert text.startswith("DMLC_QQQQQQQQQQQQQQQQ is set") and "bps env --all" in text


def test_names_of_others_are_not_ours() -> None:
    assert load({"PATH": "/bin", "PS_OTHER": "1", "MY_BYTEPS_X": "1", "NVIDIA_X": "1"}).warnings == ()


def test_the_old_spelling_is_accepted() -> None:
    assert load({"BYTEPS_MIN_COMPRESS_BYTE": "7"}).min_compress_bytes == 7
    same = {"BYTEPS_MIN_COMPRESS_BYTE": "7", "BYTEPS_MIN_COMPRESS_BYTES": "7"}
    assert load(same).min_compress_bytes == 7
    with pytest.raises(ConfigError, match="two spellings") as caught:
        load(same | {"BYTEPS_MIN_COMPRESS_BYTE": "8"})
    assert "BYTEPS_MIN_COMPRESS_BYTES=7 and BYTEPS_MIN_COMPRESS_BYTE=8" in str(caught.value)
    with pytest.raises(ConfigError, match=r"^BYTEPS_MIN_COMPRESS_BYTE='x'"):
        load({"BYTEPS_MIN_COMPRESS_BYTE": "x"})


def test_not_yet_in_force_is_said_in_one_sentence() -> None:
    (text,) = load({"DMLC_ENABLE_RDMA": "1", "BYTEPS_PARTITION_BYTES": "64"}).warnings
    assert text == "not yet in force in this version, so without effect: DMLC_ENABLE_RDMA=1"


def test_a_switch_that_is_off_asks_for_nothing() -> None:
    assert load({"BYTEPS_TRACE_ON": "0", "DMLC_ENABLE_RDMA": "0", "BYTEPS_ENABLE_IPC": "0"}).warnings == ()


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_the_secret_comes_from_a_file_without_its_newline(tmp_path: Path) -> None:
    config = load({"BYTEPS_JOB_SECRET_FILE": secret_file(tmp_path, b"\xffsesame\n")})
    assert (config.job_secret, config.warnings) == (b"\xffsesame", ())


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_secret_that_others_can_read_is_a_warning(tmp_path: Path, mode: int) -> None:
    path = secret_file(tmp_path, b"sesame", mode)
    (text,) = load({"BYTEPS_JOB_SECRET_FILE": path}).warnings
    assert f"chmod 600 {path}" in text and "sesame" not in text


@pytest.mark.parametrize("content", [b"", b" \n"])
def test_an_empty_secret_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        load({"BYTEPS_JOB_SECRET_FILE": secret_file(tmp_path, content)})


def test_a_missing_secret_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"BYTEPS_JOB_SECRET_FILE=.*No such file"):
        load({"BYTEPS_JOB_SECRET_FILE": str(tmp_path / "none")})


def test_two_different_secrets_are_an_error_that_shows_neither(tmp_path: Path) -> None:
    environ = {"BYTEPS_JOB_SECRET": "sesame", "BYTEPS_JOB_SECRET_FILE": secret_file(tmp_path, b"barley")}
    with pytest.raises(ConfigError, match="different secrets") as caught:
        load(environ)
    assert "sesame" not in str(caught.value) and "barley" not in str(caught.value)
    assert load(environ | {"BYTEPS_JOB_SECRET": "barley"}).job_secret == b"barley"


def test_a_secret_is_not_part_of_the_printed_config() -> None:
    config = load({"BYTEPS_JOB_SECRET": "sesame"})
    assert config.job_secret == b"sesame"
    assert "sesame" not in repr(config)


def test_a_secret_may_hold_any_bytes() -> None:
    assert load({"BYTEPS_JOB_SECRET": b"\xff\x01".decode(errors="surrogateescape")}).job_secret == b"\xff\x01"
