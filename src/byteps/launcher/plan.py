"""From options and environment to the processes of a job: pure, nothing is read, opened or started here.

Three ways to be called, decided in this order:

    --workers N --servers M COMMAND    a whole job on this machine: scheduler, servers, workers
    DMLC_ROLE=... [COMMAND]            one role of a job whose other roles are started elsewhere
    COMMAND                            a job of one

A new way to launch is a new function ``(options, environ, facts) -> Plan`` and a line in ``plan``. What it
needs from the machine (hosts, cores, tasks of a batch system) becomes a field of ``Facts``, gathered by its
caller; what it needs of a process (a host, a set of cores) becomes a field of ``ProcessSpec`` with a default.
``ProcessSpec.env`` holds only what the launcher itself sets, so it can also be sent to another host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from byteps.config import Config, load
from byteps.errors import ConfigError

__all__ = ["UNKNOWN", "Facts", "Options", "Plan", "ProcessSpec", "plan"]

LOOPBACK = "127.0.0.1"

# What describes a place in some job. A process of a new job never inherits it.
_IDENTITY = ("BYTEPS_JOB_ID", "BYTEPS_JOB_SECRET", "BYTEPS_JOB_SECRET_FILE")
_PLACE = frozenset(
    (
        *("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_WORKER_ID"),
        *("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_INTERFACE", "DMLC_NODE_HOST", "BYTEPS_LISTEN_FD"),
        *("BYTEPS_LOCAL_RANK", "BYTEPS_LOCAL_SIZE", "BYTEPS_GLOBAL_RANK", "BYTEPS_FORCE_DISTRIBUTED"),
        *_IDENTITY,
    )
)


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line; None where nothing was said."""

    command: tuple[str, ...] = ()
    workers: int | None = None
    servers: int | None = None


@dataclass(frozen=True)
class Facts:
    """What only the machine, or chance, can tell; gathered by the caller so that ``plan`` stays pure."""

    python: str  # the interpreter that runs scheduler and servers
    root_port: str  # of the scheduler's listening socket, already bound, so that no other program can take it
    listen_fd: str  # that socket's descriptor, inherited by the scheduler
    job_id: str
    secret: str = field(repr=False)


# For a dry run, and to find mistakes in options and environment before anything is opened.
UNKNOWN = Facts("python", "(a free port)", "(a socket)", "(made for every job)", "(made for every job)")


@dataclass(frozen=True)
class ProcessSpec:
    """One process to start."""

    label: str  # how its output is marked: "worker 0"
    role: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)  # set on top of the launcher's own environment
    drop: frozenset[str] = frozenset()  # names it does not inherit from there
    stdin: bool = False  # whether it gets the launcher's standard input; the others read nothing
    fds: tuple[int, ...] = ()  # handed over: inherited by this process and closed in the launcher

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Everything the process sees, given the launcher's environment."""
        kept = {name: value for name, value in inherited.items() if name not in self.drop}
        return {**kept, **self.env}


@dataclass(frozen=True)
class Plan:
    """What to run, and why. ``in_process``: the one process is this one, nothing is started."""

    config: Config
    processes: tuple[ProcessSpec, ...] = ()
    in_process: bool = False
    note: str = ""


def plan(options: Options, environ: Mapping[str, str], facts: Facts) -> Plan:
    """Decide what to start. Raises ``ConfigError`` that names what is missing and how to set it.

    >>> options = Options(("python", "train.py"), workers=2, servers=1)
    >>> [process.label for process in plan(options, {}, UNKNOWN).processes]
    ['scheduler', 'server 0', 'worker 0', 'worker 1']
    """
    if options.workers is not None:
        return _whole_job(options, environ, facts)
    if options.servers is not None:
        raise ConfigError("--servers needs --workers; try: bpslaunch --workers 2 --servers 1 python train.py")
    config = _load(environ)
    if not config.role:
        return _job_of_one(options, environ, config)
    _require_num_worker(environ, config.role)
    return _local_ranks(options, environ, config) if config.role == "worker" else _service(config, facts)


def _whole_job(options: Options, environ: Mapping[str, str], facts: Facts) -> Plan:
    """Scheduler, servers and workers on this machine, each worker in the place of a worker machine."""
    config = _load(environ, without=_PLACE - {"BYTEPS_FORCE_DISTRIBUTED"})
    workers = options.workers or 0
    needed = workers > 1 or config.force_distributed
    servers = int(needed) if options.servers is None else options.servers
    if workers < 1 or servers < 0:
        raise ConfigError(f"--workers {workers} --servers {servers}: at least 1 worker and 0 servers, please")
    if needed and not servers:
        raise ConfigError(
            f"--workers {workers} --servers 0: such a job needs servers; use --servers 1 or more"
        )
    command = _command(options, f"--workers {workers}")
    common = {"DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": str(servers)} | _identity(environ, facts)
    if servers:
        common |= {"DMLC_PS_ROOT_URI": LOOPBACK, "DMLC_PS_ROOT_PORT": facts.root_port} | _unbuffered(environ)
        if workers == 1:  # whoever starts servers wants them used
            common["BYTEPS_FORCE_DISTRIBUTED"] = "1"

    def member(label: str, role: str, argv: tuple[str, ...], **more: str) -> ProcessSpec:
        return ProcessSpec(label, role, argv, {"DMLC_ROLE": role, **common, **more}, _PLACE)

    alone = {"BYTEPS_LOCAL_RANK": "0", "BYTEPS_LOCAL_SIZE": "1"}
    members = [
        member(f"worker {i}", "worker", command, DMLC_WORKER_ID=str(i), **alone) for i in range(workers)
    ]
    members[0] = replace(members[0], stdin=True)
    if not servers:
        return Plan(config, tuple(members), note=_ONE)
    listen = {"BYTEPS_LISTEN_FD": facts.listen_fd}
    scheduler = member("scheduler", "scheduler", _module(facts, "scheduler"), **_SAFE, **listen)
    if facts.listen_fd.isdigit():
        scheduler = replace(scheduler, fds=(int(facts.listen_fd),))
    group = [member(f"server {i}", "server", _module(facts, "server"), **_SAFE) for i in range(servers)]
    return Plan(config, (scheduler, *group, *members))


def _job_of_one(options: Options, environ: Mapping[str, str], config: Config) -> Plan:
    """No role, no number of workers: the command alone. A half-set environment is an error, not a guess."""
    places = ("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_WORKER_ID")
    found = [name for name in places if environ.get(name)]
    found += ["DMLC_NUM_WORKER"] if config.num_worker > 1 else []
    found += ["DMLC_NUM_SERVER"] if config.num_server > 0 else []
    if found:
        raise ConfigError(
            f"DMLC_ROLE is not set, but {found[0]}={environ[found[0]]} is; set DMLC_ROLE to worker, server "
            f"or scheduler, or unset {', '.join(found)} for a job of one"
        )
    command = _command(options, "bpslaunch")
    replace(config, local_rank=0, local_size=1).check()
    env = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "BYTEPS_LOCAL_RANK": "0", "BYTEPS_LOCAL_SIZE": "1"}
    return Plan(config, (ProcessSpec("worker 0", "worker", command, env, stdin=True),), note=_ONE)


def _local_ranks(options: Options, environ: Mapping[str, str], config: Config) -> Plan:
    """The ranks of this worker machine, one for each visible device."""
    # Ranks and not machines: whether several ranks on one machine need servers is decided by them, at init.
    replace(config, local_rank=0, local_size=1).check()
    command = _command(options, "DMLC_ROLE=worker")
    size = max(1, len(config.nvidia_visible_devices))
    machine = config.worker_id or 0
    common = {"DMLC_WORKER_ID": str(machine), "BYTEPS_LOCAL_SIZE": str(size)}
    common |= _unbuffered(environ) if size > 1 else {}
    ranks = (
        ProcessSpec(
            label=f"worker {machine}" if size == 1 else f"worker {machine}.{rank}",
            role="worker",
            argv=command,
            env={**common, "BYTEPS_LOCAL_RANK": str(rank)},
            stdin=rank == 0,
        )
        for rank in range(size)
    )
    return Plan(config, tuple(ranks))


def _service(config: Config, facts: Facts) -> Plan:
    """A scheduler or a server. A command is allowed and not used: many start every role with one line."""
    role = config.role
    if config.num_worker == 1 and not config.force_distributed:
        return Plan(
            config,
            note=f"no {role} is needed: DMLC_NUM_WORKER=1 is a job of one worker machine; "
            "set BYTEPS_FORCE_DISTRIBUTED=1 everywhere to use servers all the same",
        )
    config.require_distributed()
    return Plan(config, (ProcessSpec(role, role, _module(facts, role)),), in_process=True)


_ONE = "a job of one: the command runs alone, without scheduler and servers"
_SAFE = {"PYTHONSAFEPATH": "1"}  # a file of the user named like a standard module must not break ours


def _load(environ: Mapping[str, str], without: Iterable[str] = ()) -> Config:
    """The settings; never the secret's file, which is for the processes that need it to read."""
    hidden = {*without, "BYTEPS_JOB_SECRET_FILE"}
    return load({name: value for name, value in environ.items() if name not in hidden})


def _require_num_worker(environ: Mapping[str, str], role: str) -> None:
    # The default of 1 would make a role of a larger job end at once with 0, and look like success.
    if not environ.get("DMLC_NUM_WORKER"):
        raise ConfigError(
            f"DMLC_NUM_WORKER is not set, but DMLC_ROLE={role}; set it to the number of worker machines, "
            "the same on all of them (1 for a single machine)"
        )


def _command(options: Options, where: str) -> tuple[str, ...]:
    if not options.command:
        raise ConfigError(f"nothing to run: {where} needs a COMMAND, for example: bpslaunch python train.py")
    return options.command


def _module(facts: Facts, role: str) -> tuple[str, ...]:
    return (facts.python, "-m", f"byteps.{role}")


def _unbuffered(environ: Mapping[str, str]) -> dict[str, str]:
    """Output through a pipe would else come late, and the last lines before a crash never."""
    return {} if "PYTHONUNBUFFERED" in environ else {"PYTHONUNBUFFERED": "1"}


def _identity(environ: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """Job id and secret: the user's own if there are any, unless they are those of the job we run inside."""
    inside = bool(environ.get("DMLC_ROLE"))
    own = {name: environ[name] for name in _IDENTITY if environ.get(name) and not inside}
    made = {"BYTEPS_JOB_ID": facts.job_id}
    if not ("BYTEPS_JOB_SECRET" in own or "BYTEPS_JOB_SECRET_FILE" in own):
        made["BYTEPS_JOB_SECRET"] = facts.secret
    return made | own
