"""The one table of every environment variable: attribute, type, name, parser, default, meaning and status.

A line is a variable, so that its parts cannot drift from each other; a class is a group of the documentation.
``settings.py`` reads values into it; ``docs/configuration.md`` and ``bps env`` are made from it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from byteps.config import parsers as p
from byteps.config.row import NOT_YET, PRIVATE, SUPERSEDED, Variable, row, rows


# Only ``Config``, which inherits from all these classes, is ever made. They get no methods of their own:
# making them took 15 ms of the start of every process.
def _machine_cores() -> int:
    return len(os.sched_getaffinity(0))


# fmt: off
@dataclass(frozen=True, init=False, repr=False, eq=False)
class StartUp:
    """Who is in the job, where it is, and how long things may take."""

    role: str = row("DMLC_ROLE", p.choice("worker", "server", "scheduler"), "",
        "what this process is: worker, server or scheduler")
    num_worker: int = row("DMLC_NUM_WORKER", p.integer(1), 1, "worker machines in the job")
    num_server: int = row("DMLC_NUM_SERVER", p.integer(0), 0,
        "server processes in the job; without effect in a job on one machine, unless "
        "BYTEPS_FORCE_DISTRIBUTED=1")
    root_uri: str = row("DMLC_PS_ROOT_URI", p.host, "",
        "the scheduler's address (host name or IP)", default_text="required if distributed")
    root_port: int = row("DMLC_PS_ROOT_PORT", p.port, 0,
        "the scheduler's port", default_text="required if distributed")
    worker_id: int | None = row("DMLC_WORKER_ID", p.optional(p.integer(0)), None,
        "index of this worker machine, from 0",
        default_text="required on workers if more than one")
    interface: str = row("DMLC_INTERFACE", p.word, "",
        "own network interface; its address is told to the others",
        default_text="route to the scheduler")
    node_host: str = row("DMLC_NODE_HOST", p.host, "",
        "own address as the others reach it; goes before DMLC_INTERFACE",
        default_text="route to the scheduler")
    port: range = row("DMLC_PORT", p.port_range, range(1),
        'own listening port, or a range such as "9100-9199" of which the first free one is taken',
        default_text="any free port")
    single_port: bool = row("BYTEPS_SINGLE_PORT", p.switch, False,
        "a process accepts everything on one port that is known before it starts: the scheduler on "
        "DMLC_PS_ROOT_PORT, a server on DMLC_PORT or, if that is unset, on the port after the scheduler's; "
        "workers accept nothing")
    enable_rdma: str = row("DMLC_ENABLE_RDMA", p.word, "0",
        "0 is TCP; 1 or a transport name asks for RDMA, which is not compiled in: an error at init",
        status=NOT_YET)
    local_rank: int = row("BYTEPS_LOCAL_RANK", p.integer(0), 0,
        "rank on this machine; set by the launcher")
    local_size: int = row("BYTEPS_LOCAL_SIZE", p.integer(1), 1,
        "ranks on this machine (machines may differ); set by the launcher")
    nvidia_visible_devices: tuple[str, ...] = row("NVIDIA_VISIBLE_DEVICES", p.devices, (),
        "its number of entries is the number of local ranks the launcher starts")
    global_rank: int | None = row("BYTEPS_GLOBAL_RANK", p.optional(p.integer(0)), None,
        "force the rank of this worker")
    force_distributed: bool = row("BYTEPS_FORCE_DISTRIBUTED", p.switch, False,
        "use servers with a single worker machine too")
    job_id: str = row("BYTEPS_JOB_ID", p.job_name, "default",
        "isolates the names of shared things; peers of another job are refused; made by the launcher")
    job_secret: bytes | None = row("BYTEPS_JOB_SECRET", p.optional(p.secret), None,
        "peers must prove that they know it; unset: unauthenticated; made by the launcher", secret=True)
    job_secret_file: str = row("BYTEPS_JOB_SECRET_FILE", p.path, "",
        "file that holds the job secret; only its owner should be able to read it")
    encrypt: str = row("BYTEPS_ENCRYPT", p.choice("0", "1", "all"), "0",
        "1: every connection between machines is encrypted, with keys made of the job secret; all: those "
        "inside a machine, too; needs OpenSSL's libcrypto; the same on all processes of a job")
    connect_timeout_s: float = row("BYTEPS_CONNECT_TIMEOUT_S", p.seconds, 300.0,
        "how long start-up may take before an error names who is missing")
    op_timeout_s: float = row("BYTEPS_OP_TIMEOUT_S", p.seconds, 600.0,
        "how long one operation may wait")
    stall_warn_s: float = row("BYTEPS_STALL_WARN_S", p.seconds, 10.0,
        "after this a waiting operation says by name what it waits for")
    recovery: bool = row("BYTEPS_RECOVERY", p.switch, True,
        "a connection between a worker and a server that breaks is made again, and what has no answer is "
        "sent again; 0: it ends the job at once")
    reconnect_s: float = row("BYTEPS_RECONNECT_S", p.seconds, 10.0,
        "how long a broken connection may take to be made again before the job ends because of it")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class DataPath:
    """How bytes are cut, ordered, summed and placed."""

    partition_bytes: int = row("BYTEPS_PARTITION_BYTES", p.integer(8, 1 << 30), 0,
        "partition size; a larger tensor is cut into partitions of this size, each on one server. Unset: "
        "so that every server gets its share of every tensor, 64 KiB to 4 MB; if compressed, 4096000",
        default_text="chosen for each tensor")
    scheduling_credit: int = row("BYTEPS_SCHEDULING_CREDIT", p.integer(0, 1 << 20), 4,
        "partitions in flight per server connection; 0 = unlimited, first come first served")
    min_compress_bytes: int = row("BYTEPS_MIN_COMPRESS_BYTES", p.integer(0), 65536,
        "a tensor of fewer bytes is sent uncompressed",
        aliases=("BYTEPS_MIN_COMPRESS_BYTE",))
    threadpool_size: int = row("BYTEPS_THREADPOOL_SIZE", p.integer(0, 1024),
        lambda: max(1, _machine_cores() - 1),
        "threads that compress; 0 = in the sending thread",
        default_text="cores of this rank less one, at least 1")
    plugins: tuple[str, ...] = row("BYTEPS_PLUGINS", p.modules, (),
        "modules that every worker and server imports at its start: those that register codecs")
    server_engine_thread: int = row("BYTEPS_SERVER_ENGINE_THREAD", p.integer(1, 256),
        lambda: min(4, _machine_cores()),
        "shards of a server: threads, each with its own keys and connections",
        default_text="4, at most the cores")
    server_enable_schedule: bool = row("BYTEPS_SERVER_ENABLE_SCHEDULE", p.switch, False,
        "a server answers urgent keys first")
    enable_async: bool = row("BYTEPS_ENABLE_ASYNC", p.switch, False,
        "asynchronous training: a contribution is added at once and the current value returned")
    join: bool = row("BYTEPS_JOIN", p.switch, False,
        "ranks may run out of data at different times, and call join() anywhere; costs a small sum before "
        "each operation and step")
    enable_ipc: bool = row("BYTEPS_ENABLE_IPC", p.switch, True,
        "shared memory between processes of one machine (0: TCP); the same on all members of a job")
    deterministic: bool = row("BYTEPS_DETERMINISTIC", p.switch, True,
        "sums in rank order, so the same bits every time (0: in order of arrival)")
    checksum: str = row("BYTEPS_CHECKSUM", p.choice("auto", "on", "off"), "auto",
        "CRC32C of payloads: auto (between hosts), on, off")
    key_hash_fn: str = row("BYTEPS_KEY_HASH_FN", p.choice("balanced", "naive", "djb2", "sdbm", "built_in"),
        "balanced",
        "which server holds a key: balanced (by bytes), or naive, djb2, sdbm, built_in as in the original")
    built_in_hash_coef: int = row("BYTEPS_BUILT_IN_HASH_COEF", p.integer(1), 1,
        "multiplier of the hash that built_in uses")
    enable_mixed_mode: bool = row("BYTEPS_ENABLE_MIXED_MODE", p.switch, False,
        "mixed mode (some servers beside workers, some alone) also where machines cannot be told apart; "
        "without it mixed mode is chosen from which members are on one machine")
    mixed_mode_bound: int = row("BYTEPS_MIXED_MODE_BOUND", p.integer(1), 101,
        "how finely hashes other than balanced tell the shares of mixed mode apart")
    link_speed: tuple[int, int] = row("BYTEPS_LINK_SPEED", p.rates, (0, 0),
        'speed of the link of this machine in bits per second, such as "10G", or "1G/200M" for up and down; '
        "when every machine of a job says it, servers hold what their links can carry",
        default_text="all links alike")
    socket_path: str = row("BYTEPS_SOCKET_PATH", p.path, "",
        "folder of the Unix sockets over which ranks of one machine share their memory",
        default_text="the user's runtime directory")
    pcie_switch_size: int = row("BYTEPS_PCIE_SWITCH_SIZE", p.integer(1), 8,
        "GPUs under one PCIe switch: NCCL finds the topology itself", status=SUPERSEDED)
    nccl_num_rings: int = row("BYTEPS_NCCL_NUM_RINGS", p.integer(1), 1,
        "NCCL rings: NCCL chooses, and reads NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS", status=SUPERSEDED)
    nccl_group_size: int = row("BYTEPS_NCCL_GROUP_SIZE", p.integer(1), 4,
        "NCCL calls grouped together: torch.distributed makes them", status=SUPERSEDED)
    reduce_roots: tuple[int, ...] = row("BYTEPS_REDUCE_ROOTS", p.cores, (),
        "local ranks that may be the root of a GPU reduce: every rank is, of its part", status=SUPERSEDED)
    omp_thread_per_gpu: int = row("BYTEPS_OMP_THREAD_PER_GPU", p.integer(1), 4,
        "threads per GPU that sum on the host: each rank sums its part", status=SUPERSEDED)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Launcher:
    """How the launcher starts local ranks."""

    numa_on: bool = row("BYTEPS_NUMA_ON", p.switch, True,
        "bind each local rank to its own cores, if it gets at least two of them")
    numa_default_quota: int | None = row("BYTEPS_NUMA_DEFAULT_QUOTA", p.optional(p.integer(1)), None,
        "physical cores per rank; an error if there are not that many", default_text="cores / ranks")
    numa_root_quota: int | None = row("BYTEPS_NUMA_ROOT_QUOTA", p.optional(p.integer(1)), None,
        "physical cores of the root rank, which is local rank 0",
        default_text="the rest of its node")
    cpu_blacklist: tuple[int, ...] = row("BYTEPS_CPU_BLACKLIST", p.cores, (),
        "processors not to use, whether ranks are bound or not")
    visible_cpu_cores: tuple[tuple[int, ...], ...] = row("BYTEPS_VISIBLE_CPU_CORES", p.cores_per_rank, (),
        'cores per rank, such as "1,4-5,7-11,12:20-25"; overrides the automatic choice')
    multithreaded_cpu: bool = row("BYTEPS_MULTITHREADED_CPU", p.switch, True,
        "use both threads of a core (which are siblings is read from the system)")
    enable_gdb: bool = row("BYTEPS_ENABLE_GDB", p.switch, False,
        "run the command under gdb: when it crashes, a backtrace of all its threads is printed")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Observation:
    """What is logged, measured and watched."""

    log_level: str = row("BYTEPS_LOG_LEVEL", p.choice("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"),
        "WARNING", "least important lines to log: TRACE, DEBUG, INFO, WARNING, ERROR, FATAL")
    log_hide_time: bool = row("BYTEPS_LOG_HIDE_TIME", p.switch, False, "log lines without the time")
    ps_verbose: int = row("PS_VERBOSE", p.integer(0), 0, "1: log connections, 2: log every frame")
    ps_key_log: bool = row("PS_KEY_LOG", p.switch, False, "log each contribution on the server")
    debug_sample_tensor: str = row("BYTEPS_DEBUG_SAMPLE_TENSOR", p.name, "",
        "print the values of one tensor (key or name) at every stage")
    server_debug: bool = row("BYTEPS_SERVER_DEBUG", p.switch, False,
        "print the values of tensors at every stage on the server")
    server_debug_key: str = row("BYTEPS_SERVER_DEBUG_KEY", p.name, "",
        "limit BYTEPS_SERVER_DEBUG to one tensor (key or name)", default_text="all")
    trace_on: bool = row("BYTEPS_TRACE_ON", p.switch, False,
        "write what happened to every tensor in some steps: DIR/LOCAL_RANK/comm.json for chrome://tracing "
        "and Perfetto, and recordings of all members for bps trace")
    trace_start_step: int = row("BYTEPS_TRACE_START_STEP", p.integer(0), 10,
        "first step of the trace")
    trace_end_step: int = row("BYTEPS_TRACE_END_STEP", p.integer(0), 20,
        "last step of the trace")
    trace_dir: str = row("BYTEPS_TRACE_DIR", p.path, "./traces",
        "folder of the trace")
    flight_s: int = row("BYTEPS_FLIGHT_S", p.integer(0), 30,
        "seconds that the flight recorder writes when something goes wrong; 0: it writes nothing")
    flight_dir: str = row("BYTEPS_FLIGHT_DIR", p.path, "",
        "folder of the flight recorder", default_text="byteps-flight-UID beside other temporary files")
    metrics_port: int = row("BYTEPS_METRICS_PORT", p.integer(0), 0,
        "port where the scheduler serves the numbers of the whole job to Prometheus, at /metrics; worker R "
        "serves its own at this port + 1 + R, server S at this port + 1 + all workers + S; 0: nobody does")
    dashboard_port: int = row("BYTEPS_DASHBOARD_PORT", p.integer(0), 0,
        "port where the scheduler serves a page about the job; 0: nowhere; bpslaunch --dashboard sets it")
    dashboard_token: str = row("BYTEPS_DASHBOARD_TOKEN", p.word, "",
        "word in the address of the page, without which it is refused; made by the scheduler, and logged, "
        "if there is none", secret=True)
    telemetry_on: bool = row("BYTEPS_TELEMETRY_ON", p.switch, True,
        "measure what get_pushpull_speed() reports")
    heartbeat_interval_s: float = row("PS_HEARTBEAT_INTERVAL", p.seconds, 1.0,
        "seconds between signs of life; all processes alike")
    heartbeat_timeout_s: float = row("PS_HEARTBEAT_TIMEOUT", p.seconds, 10.0,
        "seconds without a sign of life, and one interval more, after which a member counts as lost; silence "
        "shorter by two intervals is harmless; all processes alike")


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Internal:
    """Between this project's own programs; not for people."""

    listen_fd: int | None = row("BYTEPS_LISTEN_FD", p.optional(p.integer(3)), None,
        "listening socket that the scheduler inherits, from the launcher or through rank 0", status=PRIVATE)
    starter_fd: int | None = row("BYTEPS_STARTER_FD", p.optional(p.integer(3)), None,
        "socket between a scheduler or server and the rank that started it", status=PRIVATE)
    blame: str = row("BYTEPS_BLAME", p.word, "",
        "pipe on which a process tells the launcher what it knows of failures", status=PRIVATE)
    launch_id: str = row("BYTEPS_LAUNCH_ID", p.word, "",
        "the same in all processes that one launch has started, and in no others", status=PRIVATE)
    unbound_cpus: tuple[int, ...] = row("BYTEPS_UNBOUND_CPUS", p.cores, (),
        "processors of the machine before the launcher bound a rank; a scheduler or server that a rank "
        "starts uses them", status=PRIVATE)
    test_seed: int | None = row("BYTEPS_TEST_SEED", p.optional(p.integer(0)), None,
        "seed of the project's random tests", status=PRIVATE)


# fmt: on
# Dataclasses collect fields from the last base to the first: this order keeps the groups in theirs.
@dataclass(frozen=True, init=False, repr=False, eq=False)
class Table(Internal, Observation, Launcher, DataPath, StartUp):
    """Every variable as a typed attribute. Use ``byteps.config.load()`` to fill it."""


VARIABLES: dict[str, Variable] = {  # by name, in the order of the table
    **rows("Start-up", StartUp),
    **rows("Data path", DataPath),
    **rows("Launcher", Launcher),
    **rows("Debugging and observation", Observation),
    **rows("Internal", Internal),
}
