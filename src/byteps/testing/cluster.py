"""``cluster()``: a scheduler, servers and workers on this machine for the length of a ``with`` block."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from byteps.launcher import here
from byteps.launcher.plan import Options, ProcessSpec, plan
from byteps.testing.process import Collector, Process
from byteps.testing.report import FD_VARIABLE

__all__ = ["Cluster", "ClusterError", "Target", "cluster"]

Target = Callable[..., Any] | Path | str

_LAST_LINES = 40
_KILL_TIMEOUT_S = 10.0


class ClusterError(AssertionError):
    """A process ended with an error or too late; the message has the last lines of every process."""


class Cluster:
    """A job under test. ``workers`` are in rank order; processes are added as they start."""

    def __init__(self, deadline_s: float) -> None:
        self.scheduler: Process | None = None  # None in a job of one, and where rank 0 starts it
        self.servers: list[Process] = []
        self.workers: list[Process] = []
        self.collector = Collector()
        self._deadline = time.monotonic() + deadline_s

    @property
    def processes(self) -> list[Process]:
        """All of them, in the order of their start."""
        first = [] if self.scheduler is None else [self.scheduler]
        return first + self.servers + self.workers

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline - time.monotonic())

    def wait(self, check: bool = True) -> list[Any]:
        """Wait for every process to end by itself; the results of the workers in rank order.

        Raises ClusterError at the deadline and, with ``check``, when one ended with another code than 0.
        """
        late = []
        for process in (*self.workers, *self.servers, *([self.scheduler] if self.scheduler else [])):
            try:
                process.wait(self.left_s)
            except TimeoutError:
                late.append(process.label)
        if late:
            raise ClusterError(f"still running at the deadline: {', '.join(late)}\n{self.describe()}")
        failed = [process.label for process in self.processes if process.exit_code != 0]
        if failed and check:
            raise ClusterError(f"ended with an error: {', '.join(failed)}\n{self.describe()}")
        return [worker.result for worker in self.workers]

    def describe(self) -> str:
        """Exit code and last lines of every process."""
        parts = []
        for process in self.processes:
            state = "running" if process.running else f"exit code {process.exit_code}"
            lines = process.output.splitlines()[-_LAST_LINES:]
            parts.append("\n".join([f"--- {process.label} (pid {process.pid}): {state}", *lines]))
        return "\n".join(parts)

    def start(self, spec: ProcessSpec, environ: Mapping[str, str]) -> Process:
        """Start one more process of this job."""
        output_read, output_write = os.pipe()
        report_read, report_write = os.pipe()
        env = {**spec.environment(environ), FD_VARIABLE: str(report_write)}
        try:
            popen = subprocess.Popen(
                spec.argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                pass_fds=(*spec.fds, report_write),
                start_new_session=True,  # so that kill_group() reaches whatever it starts
            )
        except BaseException:
            os.close(output_read)
            os.close(report_read)
            raise
        finally:
            os.close(output_write)
            os.close(report_write)
        process = Process(spec.label, popen, (output_read, report_read), self.collector.changed)
        if spec.role == "scheduler":
            self.scheduler = process
        else:
            (self.servers if spec.role == "server" else self.workers).append(process)
        self.collector.add(process)
        return process

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            process.kill_group()
        for process in self.processes:
            with contextlib.suppress(TimeoutError):
                process.wait(_KILL_TIMEOUT_S)
        self.collector.close()


@contextlib.contextmanager
def cluster(
    target: Target,
    *,
    workers: int | None = None,
    servers: int | None = None,
    nproc: int | Sequence[int] | None = None,
    args: Sequence[Any] = (),
    env: Mapping[str, str] | None = None,
    worker_env: Mapping[int, Mapping[str, str]] | None = None,
    deadline_s: float = 60.0,
) -> Iterator[Cluster]:
    """Run ``target`` in every worker of a new job; whatever is left at the end of the block is killed.

    ``target`` is a function at the top level of a module (found again by file and name; ``args`` and its
    result are JSON), the path of a script (``args`` are its arguments), or the text of a program. ``env`` is
    set for every process, ``worker_env[rank]`` for one worker.

    ``workers`` are machines (default: 2, or 1 if only ``nproc`` is given), ``nproc`` is the number of ranks
    on each, or a number for each of them. One machine without servers is a job of one, or with ``nproc`` a
    serverless job, whose scheduler is not among the processes of the job: its rank 0 starts it.
    """
    common = {"OMP_NUM_THREADS": "1", **os.environ, **(env or {})}
    machines = workers if workers is not None else 2 if nproc is None else 1
    sizes = nproc if nproc is None or isinstance(nproc, int) else tuple(nproc)
    job = Cluster(deadline_s)
    try:
        with here.reserve() as master:
            with here.bind() as listener:
                options = Options(_command(target, args), machines, servers, sizes)
                facts = replace(here.facts(listener), master_port=str(master.getsockname()[1]))
                specs = plan(options, common, facts).processes
                here.listen(listener, specs)
                for spec in specs:
                    more = (worker_env or {}).get(len(job.workers), {}) if spec.role == "worker" else {}
                    job.start(spec, {**common, **more})
            yield job
    finally:
        job.close()


def _command(target: Target, args: Sequence[Any]) -> tuple[str, ...]:
    if isinstance(target, Path):
        return (sys.executable, str(target), *map(str, args))
    if isinstance(target, str):
        return (sys.executable, "-c", target, *map(str, args))
    file = inspect.getsourcefile(target)
    if file is None or "." in target.__qualname__:
        raise ValueError(
            f"{target!r} must be a function at the top level of a module, so that workers find it"
        )
    return (sys.executable, "-m", "byteps.testing.call", file, target.__name__, json.dumps(list(args)))
