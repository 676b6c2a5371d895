"""Every variable of the table: its default, a value that parses, and one that does not."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import byteps.config
from byteps.config import VARIABLES, Config, load
from byteps.config.row import IN_FORCE, NOT_YET, PRIVATE, SUPERSEDED
from byteps.errors import ConfigError


class Case(NamedTuple):
    """What must hold for one variable. ``bad`` is "" where every text is valid."""

    attribute: str
    default: Any
    good: str
    value: Any
    bad: str


ANY = object()  # a default that depends on the machine

CASES = {
    "DMLC_ROLE": Case("role", "", "Server", "server", "boss"),
    "DMLC_NUM_WORKER": Case("num_worker", 1, "8", 8, "0"),
    "DMLC_NUM_SERVER": Case("num_server", 0, "2", 2, "-1"),
    "DMLC_PS_ROOT_URI": Case("root_uri", "", "[::1]", "::1", "10.0.0.1:9000"),
    "DMLC_PS_ROOT_PORT": Case("root_port", 0, "1234", 1234, "65536"),
    "DMLC_WORKER_ID": Case("worker_id", None, "0", 0, "first"),
    "DMLC_INTERFACE": Case("interface", "", "eth0", "eth0", "eth 0"),
    "DMLC_NODE_HOST": Case("node_host", "", "[fe80::1%eth0]", "fe80::1%eth0", "node 7"),
    "DMLC_PORT": Case("port", range(1), "9100-9199", range(9100, 9200), "9199-9100"),
    "DMLC_ENABLE_RDMA": Case("enable_rdma", "0", "ucx", "ucx", "a b"),
    "BYTEPS_LOCAL_RANK": Case("local_rank", 0, "3", 3, "-1"),
    "BYTEPS_LOCAL_SIZE": Case("local_size", 1, "4", 4, "0"),
    "NVIDIA_VISIBLE_DEVICES": Case("nvidia_visible_devices", (), "0,1, GPU-2", ("0", "1", "GPU-2"), "0,,1"),
    "BYTEPS_GLOBAL_RANK": Case("global_rank", None, "5", 5, "5.0"),
    "BYTEPS_FORCE_DISTRIBUTED": Case("force_distributed", False, "1", True, "2"),
    "BYTEPS_JOB_ID": Case("job_id", "default", "run-7.b", "run-7.b", "../run"),
    "BYTEPS_JOB_SECRET": Case("job_secret", None, "opensesame", b"opensesame", ""),
    "BYTEPS_SINGLE_PORT": Case("single_port", False, "1", True, "9000"),
    "BYTEPS_ENCRYPT": Case("encrypt", "0", "ALL", "all", "yes"),
    "BYTEPS_JOB_SECRET_FILE": Case("job_secret_file", "", "", "", "a\nb"),
    "BYTEPS_CONNECT_TIMEOUT_S": Case("connect_timeout_s", 300.0, "0.5", 0.5, "0"),
    "BYTEPS_OP_TIMEOUT_S": Case("op_timeout_s", 600.0, "30", 30.0, "inf"),
    "BYTEPS_STALL_WARN_S": Case("stall_warn_s", 10.0, "2", 2.0, "nan"),
    "BYTEPS_RECOVERY": Case("recovery", True, "0", False, "maybe"),
    "BYTEPS_RECONNECT_S": Case("reconnect_s", 10.0, "2.5", 2.5, "0"),
    "BYTEPS_LINK_SPEED": Case("link_speed", (0, 0), "10G/2.5Gbit/s", (10**10, 25 * 10**8), "10"),
    "BYTEPS_PARTITION_BYTES": Case("partition_bytes", 0, "1024", 1024, "4MB"),
    "BYTEPS_SCHEDULING_CREDIT": Case("scheduling_credit", 4, "0", 0, "-1"),
    "BYTEPS_MIN_COMPRESS_BYTES": Case("min_compress_bytes", 65536, "0", 0, "-1"),
    "BYTEPS_THREADPOOL_SIZE": Case("threadpool_size", ANY, "0", 0, "1e3"),
    "BYTEPS_PLUGINS": Case("plugins", (), "mine, other.codecs", ("mine", "other.codecs"), "a,b c"),
    "BYTEPS_SERVER_ENGINE_THREAD": Case("server_engine_thread", ANY, "7", 7, "0"),
    "BYTEPS_SERVER_ENABLE_SCHEDULE": Case("server_enable_schedule", False, "true", True, "maybe"),
    "BYTEPS_JOIN": Case("join", False, "1", True, "2"),
    "BYTEPS_ENABLE_ASYNC": Case("enable_async", False, "yes", True, "01"),
    "BYTEPS_ENABLE_IPC": Case("enable_ipc", True, "0", False, "-1"),
    "BYTEPS_DETERMINISTIC": Case("deterministic", True, "off", False, "none"),
    "BYTEPS_CHECKSUM": Case("checksum", "auto", "ON", "on", "crc32"),
    "BYTEPS_KEY_HASH_FN": Case("key_hash_fn", "balanced", "djb2", "djb2", "md5"),
    "BYTEPS_BUILT_IN_HASH_COEF": Case("built_in_hash_coef", 1, "3", 3, "0"),
    "BYTEPS_ENABLE_MIXED_MODE": Case("enable_mixed_mode", False, "1", True, "x"),
    "BYTEPS_MIXED_MODE_BOUND": Case("mixed_mode_bound", 101, "7", 7, "0"),
    "BYTEPS_SOCKET_PATH": Case("socket_path", "", "/run/my jobs", "/run/my jobs", "a\tb"),
    "BYTEPS_PCIE_SWITCH_SIZE": Case("pcie_switch_size", 8, "4", 4, "0"),
    "BYTEPS_NCCL_NUM_RINGS": Case("nccl_num_rings", 1, "2", 2, "0"),
    "BYTEPS_NCCL_GROUP_SIZE": Case("nccl_group_size", 4, "8", 8, "0"),
    "BYTEPS_REDUCE_ROOTS": Case("reduce_roots", (), "0,3", (0, 3), "0,a"),
    "BYTEPS_OMP_THREAD_PER_GPU": Case("omp_thread_per_gpu", 4, "2", 2, "0"),
    "BYTEPS_NUMA_ON": Case("numa_on", True, "0", False, "2"),
    "BYTEPS_NUMA_DEFAULT_QUOTA": Case("numa_default_quota", None, "6", 6, "0"),
    "BYTEPS_NUMA_ROOT_QUOTA": Case("numa_root_quota", None, "2", 2, "0"),
    "BYTEPS_CPU_BLACKLIST": Case("cpu_blacklist", (), "0,4-6", (0, 4, 5, 6), "4-"),
    "BYTEPS_VISIBLE_CPU_CORES": Case(
        "visible_cpu_cores",
        (),
        "1,4-5,7-11,12:20-25",
        ((1, 4, 5, 7, 8, 9, 10, 11, 12), (20, 21, 22, 23, 24, 25)),
        "1;2",
    ),
    "BYTEPS_MULTITHREADED_CPU": Case("multithreaded_cpu", True, "0", False, "2"),
    "BYTEPS_ENABLE_GDB": Case("enable_gdb", False, "1", True, "2"),
    "BYTEPS_LOG_LEVEL": Case("log_level", "WARNING", "trace", "TRACE", "LOUD"),
    "BYTEPS_LOG_HIDE_TIME": Case("log_hide_time", False, "1", True, "2"),
    "PS_VERBOSE": Case("ps_verbose", 0, "2", 2, "much"),
    "PS_KEY_LOG": Case("ps_key_log", False, "1", True, "2"),
    "BYTEPS_DEBUG_SAMPLE_TENSOR": Case("debug_sample_tensor", "", "fc.weight", "fc.weight", "a\nb"),
    "BYTEPS_SERVER_DEBUG": Case("server_debug", False, "1", True, "2"),
    "BYTEPS_SERVER_DEBUG_KEY": Case("server_debug_key", "", "17", "17", "a\nb"),
    "BYTEPS_TRACE_ON": Case("trace_on", False, "1", True, "2"),
    "BYTEPS_TRACE_START_STEP": Case("trace_start_step", 10, "0", 0, "-1"),
    "BYTEPS_TRACE_END_STEP": Case("trace_end_step", 20, "50", 50, "ten"),
    "BYTEPS_DASHBOARD_PORT": Case("dashboard_port", 0, "8080", 8080, "-1"),
    "BYTEPS_DASHBOARD_TOKEN": Case("dashboard_token", "", "abc", "abc", "a b"),
    "BYTEPS_METRICS_PORT": Case("metrics_port", 0, "9400", 9400, "-1"),
    "BYTEPS_FLIGHT_S": Case("flight_s", 30, "0", 0, "-1"),
    "BYTEPS_FLIGHT_DIR": Case("flight_dir", "", "/data/f", "/data/f", "a\nb"),
    "BYTEPS_TRACE_DIR": Case("trace_dir", "./traces", "/data/t", "/data/t", "a\nb"),
    "BYTEPS_TELEMETRY_ON": Case("telemetry_on", True, "0", False, "2"),
    "PS_HEARTBEAT_INTERVAL": Case("heartbeat_interval_s", 1.0, "0.25", 0.25, "0"),
    "PS_HEARTBEAT_TIMEOUT": Case("heartbeat_timeout_s", 10.0, "3", 3.0, "-3"),
    "BYTEPS_LISTEN_FD": Case("listen_fd", None, "5", 5, "stdin"),
    "BYTEPS_STARTER_FD": Case("starter_fd", None, "6", 6, "2"),
    "BYTEPS_BLAME": Case("blame", "", "7:1234", "7:1234", "a b"),
    "BYTEPS_LAUNCH_ID": Case("launch_id", "", "a1b2", "a1b2", "a b"),
    "BYTEPS_UNBOUND_CPUS": Case("unbound_cpus", (), "0-2,8", (0, 1, 2, 8), "all"),
    "BYTEPS_TEST_SEED": Case("test_seed", None, "42", 42, "random"),
}

EACH = pytest.mark.parametrize("name", sorted(CASES))


def test_every_variable_has_a_case_and_every_field_a_variable() -> None:
    assert set(CASES) == set(VARIABLES)
    fields = {field.name for field in dataclasses.fields(Config)} - {"warnings"}
    assert fields == {variable.attribute for variable in VARIABLES.values()}


@EACH
def test_default(name: str) -> None:
    case = CASES[name]
    assert VARIABLES[name].attribute == case.attribute
    if case.default is not ANY:
        assert getattr(load({}), case.attribute) == case.default
        assert type(getattr(load({}), case.attribute)) is type(case.default)


@EACH
def test_empty_counts_as_unset(name: str) -> None:
    assert load({name: "  "}) == load({})


@EACH
def test_good_value(name: str) -> None:
    case = CASES[name]
    value = getattr(load({name: f" {case.good} "}), case.attribute)
    assert value == case.value
    assert type(value) is type(case.value)


@pytest.mark.parametrize("name", sorted(name for name, case in CASES.items() if case.bad))
def test_bad_value_names_variable_value_and_what_is_valid(name: str) -> None:
    bad = CASES[name].bad
    with pytest.raises(ConfigError) as caught:
        load({name: bad})
    assert str(caught.value) == f"{name}={bad!r} does not parse: expected {VARIABLES[name].parser.valid}"


def test_defaults_that_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, shards, threads in ((1, 1, 1), (2, 2, 1), (4, 4, 3), (64, 4, 63)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _pid, n=cores: set(range(n)))
        config = load({})
        assert (config.server_engine_thread, config.threadpool_size) == (shards, threads)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", range(1)), ("9100", range(9100, 9101)), ("1-65535", range(1, 65536))],
)
def test_port_ranges(text: str, expected: range) -> None:
    assert load({"DMLC_PORT": text}).port == expected


@pytest.mark.parametrize("text", ["0-10", "9000-70000", "-5", "9100-", "x", "9100-9199-9200"])
def test_bad_port_ranges(text: str) -> None:
    with pytest.raises(ConfigError, match="DMLC_PORT"):
        load({"DMLC_PORT": text})


@pytest.mark.parametrize("text", ["1_000", "+8", "0x10", "٤", "8.0", "1 000"])
def test_numbers_are_plain_digits(text: str) -> None:
    with pytest.raises(ConfigError, match="BYTEPS_PARTITION_BYTES"):
        load({"BYTEPS_PARTITION_BYTES": text})


@pytest.mark.parametrize("text", ["all", "none", "void"])
def test_words_of_the_container_runtime_name_no_device(text: str) -> None:
    assert load({"NVIDIA_VISIBLE_DEVICES": text}).nvidia_visible_devices == ()


def test_status_of_every_variable() -> None:
    by_status = {
        status: sorted(v.attribute for v in VARIABLES.values() if v.status == status)
        for status in (NOT_YET, SUPERSEDED, PRIVATE)
    }
    assert by_status == {
        NOT_YET: [
            "enable_rdma",
        ],
        SUPERSEDED: [
            "nccl_group_size",
            "nccl_num_rings",
            "omp_thread_per_gpu",
            "pcie_switch_size",
            "reduce_roots",
        ],
        PRIVATE: ["blame", "launch_id", "listen_fd", "starter_fd", "test_seed", "unbound_cpus"],
    }
    assert {v.status for v in VARIABLES.values()} == {IN_FORCE, NOT_YET, SUPERSEDED, PRIVATE}


def test_what_is_superseded_says_so_when_it_is_set() -> None:
    assert load({}).warnings == ()
    (said,) = load({"BYTEPS_NCCL_NUM_RINGS": "2"}).warnings
    assert said.startswith("without effect here: BYTEPS_NCCL_NUM_RINGS (NCCL rings: ")


def test_what_is_in_force_is_used_and_what_is_not_is_not() -> None:
    own = Path(byteps.config.__file__).parent
    files = [path for path in own.parent.rglob("*.py") if own not in path.parents]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    # A rule of Config speaks for the first, load() reads the second; the third waits for its user.
    elsewhere = {"enable_rdma", "job_secret_file"}
    for variable in VARIABLES.values():
        if variable.status in (IN_FORCE, NOT_YET) and variable.attribute not in elsewhere:
            used = re.search(rf"config\.{variable.attribute}\b", text) is not None
            assert used == (variable.status == IN_FORCE), variable.name


def test_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load({}).num_worker = 2  # type: ignore[misc]


def test_reading_the_configuration_is_light() -> None:
    program = "import sys, byteps.config; print({'numpy', 'torch', 'msgspec', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "set()"), done.stderr
