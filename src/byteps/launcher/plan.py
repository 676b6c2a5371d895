"""From options and environment to the processes of a job: pure, nothing is read, opened or started here.

Ways to be called, decided in this order:

    --workers W --nproc N --servers M COMMAND    a whole job here: scheduler, servers, W machines of N ranks
    DMLC_ROLE=... [--nproc N] [COMMAND]          one role of a job whose other roles are started elsewhere
    --nproc N COMMAND                            N ranks on this machine, and nothing else to start
    COMMAND                                      a job of one

One worker machine with several ranks and no servers is a *serverless* job, whichever way it was asked for:
only its ranks are started here, and rank 0 starts what they need (``byteps.worker.services``).

A new way to launch is a new function ``(options, environ, facts) -> Plan`` and a line in ``plan``. What it
needs from the machine (hosts, cores, tasks of a batch system) becomes a field of ``Facts``, gathered by its
caller; what it needs of a process (a host, a set of cores) becomes a field of ``ProcessSpec`` with a default.
``ProcessSpec.env`` holds only what the launcher itself sets, so it can also be sent to another host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from byteps.config import Config
from byteps.errors import ConfigError
from byteps.launcher import rendezvous
from byteps.launcher.parts import (
    IDENTITY,
    LAUNCH_ID,
    PLACE,
    SAFE,
    label,
    listening,
    load_without,
    module,
    place,
    server_port,
    unbuffered,
)
from byteps.launcher.spec import LOOPBACK, UNKNOWN, Facts, Options, Plan, ProcessSpec

__all__ = ["LOOPBACK", "UNKNOWN", "Facts", "Options", "Plan", "ProcessSpec", "plan"]


def plan(options: Options, environ: Mapping[str, str], facts: Facts) -> Plan:
    """Decide what to start. Raises ``ConfigError`` that names what is missing and how to set it.

    >>> options = Options(("python", "train.py"), workers=2, servers=1)
    >>> [process.label for process in plan(options, {}, UNKNOWN).processes]
    ['scheduler', 'server 0', 'worker 0', 'worker 1']
    """
    if options.workers is None and options.nproc is None and options.servers is not None:
        raise ConfigError("--servers needs --workers; try: bpslaunch --workers 2 --servers 1 python train.py")
    if options.workers is not None or options.servers is not None:
        return _whole_job(options, environ, facts)
    config = load_without(environ)
    if config.role:
        _require_num_worker(environ, config.role)
        if config.role != "worker":
            return _service(config, facts)
        return _local_ranks(options, environ, config, facts)
    _refuse_half_set(environ, config)
    if options.nproc is not None:
        return _whole_job(replace(options, workers=1), environ, facts)
    return _job_of_one(options, config, facts)


def _whole_job(options: Options, environ: Mapping[str, str], facts: Facts) -> Plan:
    """All processes of a job on this machine, where every worker machine is played by its ranks."""
    config = load_without(environ, without=PLACE - {"BYTEPS_FORCE_DISTRIBUTED"})
    sizes = _sizes(options)
    workers = len(sizes)
    needed = workers > 1 or config.force_distributed
    servers = int(needed) if options.servers is None else options.servers
    if servers < 0:
        raise ConfigError(f"--servers {servers}: expected 0 or more")
    if needed and not servers:
        why = f"--workers {workers}" if workers > 1 else "BYTEPS_FORCE_DISTRIBUTED=1"
        raise ConfigError(f"{why} with --servers 0: such a job needs servers; use --servers 1 or more")
    command = _command(options, f"--workers {workers}" if options.nproc is None else f"--nproc {sizes[0]}")
    if not servers and sizes[0] > 1:
        return _serverless(config, sizes[0], command, environ, facts)
    common = {"DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": str(servers)} | _identity(environ, facts)
    if servers:
        common |= _root(facts) | unbuffered(environ)
        if workers == 1:  # whoever starts servers wants them used
            common["BYTEPS_FORCE_DISTRIBUTED"] = "1"

    def member(label: str, role: str, argv: tuple[str, ...], **more: str) -> ProcessSpec:
        return ProcessSpec(label, role, argv, {"DMLC_ROLE": role, **common, **more}, PLACE)

    master = rendezvous.address(facts.master_addr, facts)
    members = [
        member(label(sizes, machine, rank), "worker", command, **place(sizes, machine, rank), **master)
        for machine, size in enumerate(sizes)
        for rank in range(size)
    ]
    members[0] = replace(members[0], stdin=True)
    if not servers:
        return Plan(config, tuple(members), note=_ONE)
    scheduler = member("scheduler", "scheduler", module(facts, "scheduler"), **SAFE)
    group = [
        member(
            f"server {index}",
            "server",
            module(facts, "server"),
            **SAFE,
            **server_port(config, facts.root_port, index),
        )
        for index in range(servers)
    ]
    return Plan(config, (listening(scheduler, facts), *group, *members))


def _serverless(
    config: Config, size: int, command: tuple[str, ...], environ: Mapping[str, str], facts: Facts
) -> Plan:
    """The ranks of a job on one machine. Rank 0 gets the socket of the scheduler that it will start."""
    common = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "0"}
    common |= _identity(environ, facts) | _root(facts) | unbuffered(environ)
    common |= rendezvous.address(facts.master_addr, facts)
    ranks = [
        ProcessSpec(label([size], 0, rank), "worker", command, {**common, **place([size], 0, rank)}, PLACE)
        for rank in range(size)
    ]
    ranks[0] = replace(listening(ranks[0], facts), stdin=True)
    note = f"{size} ranks on this machine; rank 0 starts their scheduler"
    if not config.grouped:
        why = "BYTEPS_ENABLE_ASYNC=1" if config.enable_async else "BYTEPS_ENABLE_IPC=0"
        note += f", and one server, because of {why}"
    return Plan(config, tuple(ranks), note=note)


def _refuse_half_set(environ: Mapping[str, str], config: Config) -> None:
    """Without a role nothing may speak of others: a half-set environment is an error, not a guess."""
    places = ("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_WORKER_ID")
    found = [name for name in places if environ.get(name)]
    found += ["DMLC_NUM_WORKER"] if config.num_worker > 1 else []
    found += ["DMLC_NUM_SERVER"] if config.num_server > 0 else []
    if found:
        raise ConfigError(
            f"DMLC_ROLE is not set, but {found[0]}={environ[found[0]]} is; set DMLC_ROLE to worker, server "
            f"or scheduler, or unset {', '.join(found)} for a job on this machine alone"
        )


def _job_of_one(options: Options, config: Config, facts: Facts) -> Plan:
    """No role and no numbers: the command alone."""
    command = _command(options, "bpslaunch")
    replace(config, local_rank=0, local_size=1).check()
    env = {"DMLC_ROLE": "worker", "DMLC_NUM_WORKER": "1", **place([1], 0, 0)}
    env |= rendezvous.address(facts.master_addr, facts)
    del env["DMLC_WORKER_ID"]  # whatever is set for this machine stays: a job of one does not look at it
    spec = ProcessSpec("worker 0", "worker", command, env, rendezvous.NAMES, stdin=True)
    return Plan(config, (spec,), note=_ONE)


def _local_ranks(options: Options, environ: Mapping[str, str], config: Config, facts: Facts) -> Plan:
    """The ranks of this worker machine: as many as asked for, else one for each visible device."""
    replace(config, local_rank=0, local_size=1).check()
    command = _command(options, "DMLC_ROLE=worker")
    (size,) = _sizes(options) if options.nproc is not None else [max(1, len(config.nvidia_visible_devices))]
    if replace(config, local_size=size).serverless:
        return _serverless(config, size, command, environ, facts)
    machine = (config.worker_id or 0) if config.num_worker > 1 else 0
    common = unbuffered(environ) if size > 1 else {}
    # As torchrun does: all machines are taken to have as many ranks as this one, and MASTER_ADDR is for the
    # user to set, because only a worker of machine 0 can tell its address.
    sizes = [size] * config.num_worker
    ranks = (
        ProcessSpec(
            label=label(sizes, machine, rank),
            role="worker",
            argv=command,
            env={**common, **place(sizes, machine, rank)},
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
    return Plan(config, (ProcessSpec(role, role, module(facts, role)),), in_process=True)


_ONE = "a job of one: the command runs alone, without scheduler and servers"


def _sizes(options: Options) -> list[int]:
    """How many ranks each worker machine has."""
    workers = 1 if options.workers is None else options.workers
    if workers < 1:
        raise ConfigError(f"--workers {workers}: expected at least 1 worker machine")
    if isinstance(options.nproc, tuple):
        sizes = list(options.nproc)
    else:
        sizes = [1 if options.nproc is None else options.nproc] * workers
    if len(sizes) != workers or min(sizes) < 1:
        said = ", ".join(map(str, sizes))
        raise ConfigError(f"--nproc {said}: expected at least 1 rank on each of {workers} machines")
    return sizes


def _root(facts: Facts) -> dict[str, str]:
    return {"DMLC_PS_ROOT_URI": facts.root_uri, "DMLC_PS_ROOT_PORT": facts.root_port}


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


def _identity(environ: Mapping[str, str], facts: Facts) -> dict[str, str]:
    """Job id and secret: the user's own if there are any, unless they are those of the job we run inside.

    The launch id is never the user's: two launches of one job id are told apart by it.
    """
    inside = bool(environ.get("DMLC_ROLE"))
    own = {name: environ[name] for name in IDENTITY if environ.get(name) and not inside}
    made = {"BYTEPS_JOB_ID": facts.job_id, LAUNCH_ID: facts.launch_id}
    if not ("BYTEPS_JOB_SECRET" in own or "BYTEPS_JOB_SECRET_FILE" in own):
        made["BYTEPS_JOB_SECRET"] = facts.secret
    return made | own
