"""The settings of this process: every environment variable read once into a typed, frozen ``Config``.

``load()`` is pure except for the secret's file: it raises ``ConfigError`` for a value that does not parse and
collects what deserves a warning in ``Config.warnings``; ``byteps.observe.logging.setup`` says those once.
``Config.check()`` looks for contradictions between variables, apart from loading: a job of one needs few.

    >>> config = load({"DMLC_NUM_WORKER": "2"})
    >>> config.distributed, config.scheduling_credit
    (True, 4)

The table itself, one line per variable, is in ``table.py``. An empty value counts as unset.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from byteps.config.row import NOT_YET, SUPERSEDED, Variable
from byteps.config.table import VARIABLES, Table
from byteps.errors import ConfigError

__all__ = ["Config", "load", "lookup", "parse", "unknown_names"]

_PREFIXES = ("BYTEPS_", "DMLC_")


@dataclass(frozen=True)
class Config(Table):
    """Every variable as a typed attribute (see ``Table``), and what follows from them."""

    warnings: tuple[str, ...] = ()  # to be said once, by whoever sets up logging

    @property
    def distributed(self) -> bool:
        """True when the job has more than one rank, or servers were asked for: a scheduler is needed."""
        return self.num_worker > 1 or self.local_size > 1 or self.force_distributed

    @property
    def grouped(self) -> bool:
        """True when the ranks of one machine work together over shared memory."""
        return self.enable_ipc and not self.enable_async

    @property
    def serverless(self) -> bool:
        """True when the whole job is on one machine: rank 0 starts what it needs, and nobody else does."""
        return self.num_worker == 1 and self.local_size > 1 and not self.force_distributed

    @property
    def needs_own_server(self) -> bool:
        """True when rank 0 of a serverless job starts a server all the same: nothing is grouped."""
        return self.serverless and not self.grouped

    @property
    def server_ports(self) -> range:
        """Where a server may listen; the first free one is taken. 0 is any port.

        >>> load({"BYTEPS_SINGLE_PORT": "1", "DMLC_PS_ROOT_PORT": "9000"}).server_ports
        range(9001, 9002)
        """
        if not self.single_port or self.port != range(1):
            return self.port
        return range(self.root_port + 1, self.root_port + 2)

    def problems(self) -> list[str]:
        """What contradicts what, whatever the kind of job; empty when all is well."""
        found = []
        if self.enable_rdma != "0":
            found.append(
                f"DMLC_ENABLE_RDMA={self.enable_rdma} asks for RDMA, but only TCP is compiled in; "
                "unset it or set it to 0"
            )
        if self.local_rank >= self.local_size:
            found.append(
                f"BYTEPS_LOCAL_RANK={self.local_rank} is not below BYTEPS_LOCAL_SIZE={self.local_size}; "
                "ranks count from 0: lower the rank or raise the size"
            )
        if self.heartbeat_interval_s >= self.heartbeat_timeout_s:
            found.append(
                f"PS_HEARTBEAT_INTERVAL={self.heartbeat_interval_s:g} is not below "
                f"PS_HEARTBEAT_TIMEOUT={self.heartbeat_timeout_s:g}; every peer would count as lost: "
                "raise the time-out to several intervals"
            )
        if self.single_port and (len(self.port) > 1 or self.server_ports[-1] > 65_535):
            found.append(
                f"BYTEPS_SINGLE_PORT=1 wants one port for a server, and gets {self.server_ports[0]} to "
                f"{self.server_ports[-1]}; set DMLC_PORT to one port, or unset it for the one after "
                "DMLC_PS_ROOT_PORT"
            )
        if self.join and self.enable_async:
            found.append(
                "BYTEPS_JOIN=1 and BYTEPS_ENABLE_ASYNC=1 contradict each other: asynchronous ranks wait for "
                "nobody; unset one of them"
            )
        if self.trace_start_step > self.trace_end_step:
            found.append(
                f"BYTEPS_TRACE_START_STEP={self.trace_start_step} is after "
                f"BYTEPS_TRACE_END_STEP={self.trace_end_step}; set the end to a later step"
            )
        return found

    def distributed_problems(self) -> list[str]:
        """What is missing or contradicts for a job with scheduler and servers; empty when all is well."""
        found = []
        why = _why_distributed(self)
        found += _root_problems(self, why)
        if self.num_server == 0 and not self.serverless:
            found.append(
                f"DMLC_NUM_SERVER is 0, but {why}; set it to the number of servers you start, at least 1"
            )
        if self.role in ("", "worker"):
            if self.num_worker > 1 and self.worker_id is None:
                found.append(
                    f"DMLC_WORKER_ID is not set, but DMLC_NUM_WORKER={self.num_worker}; "
                    f"set it on every worker machine, from 0 to {self.num_worker - 1}"
                )
            if self.worker_id is not None and self.worker_id >= self.num_worker:
                found.append(
                    f"DMLC_WORKER_ID={self.worker_id} is not below DMLC_NUM_WORKER={self.num_worker}; "
                    "machines count from 0: lower the id or raise the number"
                )
        return found

    def check(self) -> None:
        """Raise ``ConfigError`` with every contradiction; those of a distributed job only if this is one."""
        _raise(self.problems() + (self.distributed_problems() if self.distributed else []))

    def require_distributed(self) -> None:
        """Raise ``ConfigError`` unless this process can take part in a job with scheduler and servers."""
        _raise(self.problems() + self.distributed_problems())


def _root_problems(config: Config, why: str) -> list[str]:
    """What is missing of the scheduler's address."""
    no_port = not config.root_port and not (config.role == "scheduler" and config.listen_fd is not None)
    if config.serverless and (not config.root_uri or no_port):
        return [
            f"DMLC_PS_ROOT_URI or DMLC_PS_ROOT_PORT is not set, but {why}; start it with "
            f"`bpslaunch -n {config.local_size} COMMAND`, which sets them, or set both on every rank to an "
            "address of this machine and a free port"
        ]
    found = []
    if not config.root_uri:
        found.append(f"DMLC_PS_ROOT_URI is not set, but {why}; set it to the scheduler's address")
    if no_port:
        found.append(f"DMLC_PS_ROOT_PORT is not set, but {why}; set it to the scheduler's port")
    return found


def _why_distributed(config: Config) -> str:
    if config.num_worker > 1:
        return f"DMLC_NUM_WORKER={config.num_worker} makes the job distributed"
    if config.local_size > 1:
        return f"BYTEPS_LOCAL_SIZE={config.local_size} makes the job distributed"
    if config.force_distributed:
        return "BYTEPS_FORCE_DISTRIBUTED=1 makes the job distributed"
    return f"a {config.role or 'worker'} with servers needs it"


def _raise(problems: list[str]) -> None:
    if problems:
        raise ConfigError("\n".join(problems))


def load(environ: Mapping[str, str] | None = None) -> Config:
    """Read every variable of ``environ`` (default: the process's own) and return the settings in force."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    not_yet, superseded = [], []
    for variable in VARIABLES.values():
        name, text = lookup(variable, environ)
        if not text:
            continue
        value = values[variable.attribute] = parse(variable, name, text)
        # A switch that is off asks for nothing, which is what this version does.
        if variable.status == NOT_YET and value is not False and value != "0":
            not_yet.append(f"{name}={text}")
        if variable.status == SUPERSEDED:
            superseded.append(f"{name} ({variable.meaning})")
    warnings = unknown_names(environ)
    if not_yet:
        warnings.append(f"not yet in force in this version, so without effect: {', '.join(not_yet)}")
    if superseded:
        warnings.append(f"without effect here: {'; '.join(superseded)}")
    if path := values.get("job_secret_file"):
        values["job_secret"], advice = _read_secret(Path(path), values.get("job_secret"))
        warnings += advice
    config = Config(**values, warnings=tuple(warnings))
    # In a job on one machine only rank 0 starts servers: a number that was set for another job is not asked.
    return replace(config, num_server=int(config.needs_own_server)) if config.serverless else config


def unknown_names(environ: Mapping[str, str]) -> list[str]:
    """One sentence for every name that looks like ours and is not, with the nearest name that is."""
    known = {alias for variable in VARIABLES.values() for alias in (variable.name, *variable.aliases)}
    sentences = []
    for name in sorted(environ):
        if name.startswith(_PREFIXES) and name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else "`bps env --all` lists the names there are"
            sentences.append(f"{name} is set but is not a known variable; {hint}")
    return sentences


def lookup(variable: Variable, environ: Mapping[str, str]) -> tuple[str, str]:
    """The name that was used and its text ("" when unset); two spellings with two values are an error."""
    spellings = ((name, environ.get(name, "").strip()) for name in (variable.name, *variable.aliases))
    given = [(name, text) for name, text in spellings if text]
    if len({text for _, text in given}) > 1:
        both = " and ".join(f"{name}={text}" for name, text in given)
        raise ConfigError(f"{both} are two spellings of one variable and differ; keep {variable.name} only")
    return given[0] if given else (variable.name, "")


def parse(variable: Variable, name: str, text: str) -> Any:
    """The value that ``text`` stands for; ``ConfigError`` with the ``name`` used if it does not parse."""
    try:
        return variable.parser.parse(text)
    except ValueError:  # no parser of a secret raises it, so no secret is shown here
        raise ConfigError(f"{name}={text!r} does not parse: expected {variable.parser.valid}") from None


def _read_secret(path: Path, given: bytes | None) -> tuple[bytes, list[str]]:
    """The secret in a file, and a warning when others can read it."""
    try:
        secret = path.read_bytes().strip()
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(
            f"BYTEPS_JOB_SECRET_FILE={str(path)!r} cannot be read: {error.strerror}; "
            "expected a file with the job's secret"
        ) from None
    if not secret:
        raise ConfigError(
            f"BYTEPS_JOB_SECRET_FILE={str(path)!r} is empty; expected a file with the job's secret"
        )
    if given is not None and given != secret:
        raise ConfigError(
            "BYTEPS_JOB_SECRET and BYTEPS_JOB_SECRET_FILE are both set and hold different secrets; keep one"
        )
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        return secret, [f"the job secret in {path} can be read by other users; run: chmod 600 {path}"]
    return secret, []
