"""A job of real scheduler and server processes, workers in threads or processes; every wait is bounded."""

from __future__ import annotations

import asyncio
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

from byteps.config import Config, load
from byteps.control.messages import Conflict, Message, View
from byteps.control.scheduler_channel import SchedulerChannel, connect, registration
from byteps.errors import NotInitializedError
from byteps.worker.control import ControlClient
from byteps.worker.loop_thread import LoopThread

T = TypeVar("T")

LIMIT_S = 30.0

# A worker in a process of its own: joins, says so, then does what it is told line by line.
WORKER = """
import sys, time
from byteps.config import load
from byteps.errors import NotInitializedError
from byteps.worker.control import ControlClient

def lost(error):
    print("lost", error.role, error.rank, error.reason, flush=True)

client = ControlClient(load(), on_lost=lost, on_conflict=print, on_departed=lambda rank: None)
view = client.register()
print("joined", view.rank, flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
client.leave()
"""


class Process:
    """A child whose lines of output can be waited for."""

    def __init__(self, arguments: list[str], env: dict[str, str], fds: tuple[int, ...] = ()) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=fds,
            text=True,
        )
        self.lines: list[str] = []
        self._incoming: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._incoming.put(line.rstrip("\n"))
        self._incoming.put(None)

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def expect(self, words: str) -> str:
        """The next line with these words in it."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            line = self._incoming.get(timeout=max(0.0, deadline - time.monotonic()))
            assert line is not None, f"ended without {words!r}:\n" + self.output
            self.lines.append(line)
            if words in line:
                return line

    def wait(self) -> int:
        code = self.popen.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        while not self._incoming.empty():
            line = self._incoming.get()
            self.lines += [] if line is None else [line]
        return code

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
        self.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


class Worker:
    """A control client in this process, and what it was told."""

    def __init__(self, config: Config) -> None:
        self.losses: queue.SimpleQueue[tuple[str, int, str, str]] = queue.SimpleQueue()
        self.conflicts: queue.SimpleQueue[Conflict] = queue.SimpleQueue()
        self.departures: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.client = ControlClient(
            config,
            on_lost=lambda error: self.losses.put((error.role, error.rank, error.host, error.reason)),
            on_conflict=self.conflicts.put,
            on_departed=self.departures.put,
        )
        self.view: View | None = None

    def join(self) -> Worker:
        self.view = self.client.register()
        return self


class RawMember:
    """A member that does only what a test says, message by message."""

    def __init__(self, config: Config, role: str = "worker", **server: int) -> None:
        self._thread = LoopThread("raw-member")
        self._link = self._thread.call(self._connect(config, role), LIMIT_S)
        self.send(registration(config, role, "127.0.0.1", **server))

    async def _connect(self, config: Config, role: str) -> SchedulerChannel:
        while True:
            try:
                return await connect(config, role, secrets.randbits(62))
            except ConnectionRefusedError:  # the scheduler is on its way
                await asyncio.sleep(0.05)

    def send(self, message: Message) -> None:
        self._thread.run(lambda: self._link.send(message))

    def receive(self) -> Message:
        return self._thread.call(self._link.receive(), LIMIT_S)

    def close(self) -> None:
        try:
            self._thread.run(self._link.close)
        except NotInitializedError:
            pass  # it is closed
        self._thread.stop()


class Job:
    """The environment of a job, and everything that was started for it."""

    def __init__(self, workers: int, servers: int, **env: str) -> None:
        self.listener = socket.socket()
        self.listener.bind(
            ("127.0.0.1", 0)
        )  # not listening yet: callers are refused until the scheduler is up
        self.port = int(self.listener.getsockname()[1])
        self.env = {
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(self.port),
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
            "BYTEPS_FORCE_DISTRIBUTED": "1",
            "BYTEPS_CONNECT_TIMEOUT_S": "30",
            "BYTEPS_JOB_ID": "test",
            **env,
        }
        self._pool = ThreadPoolExecutor(16)
        self._processes: list[Process] = []
        self._workers: list[Worker] = []
        self._members: list[RawMember] = []

    def scheduler(self, **env: str) -> Process:
        fd = self.listener.fileno()
        own = {**self.env, "DMLC_ROLE": "scheduler", "BYTEPS_LISTEN_FD": str(fd), **env}
        return self._start(Process(["-m", "byteps.scheduler"], own, (fd,)))

    def server(self, **env: str) -> Process:
        return self._start(Process(["-m", "byteps.server"], {**self.env, "DMLC_ROLE": "server", **env}))

    def worker_process(self, worker_id: int, **env: str) -> Process:
        own = {**self.env, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": str(worker_id), **env}
        return self._start(Process(["-c", WORKER], own))

    def _start(self, process: Process) -> Process:
        self._processes.append(process)
        return process

    def config(self, worker_id: int = 0, **env: str) -> Config:
        return load({**self.env, "DMLC_ROLE": "worker", "DMLC_WORKER_ID": str(worker_id), **env})

    def worker(self, worker_id: int, **env: str) -> Worker:
        worker = Worker(self.config(worker_id, **env))
        self._workers.append(worker)
        return worker

    def raw_when_up(self, worker_id: int, **env: str) -> RawMember:
        member = RawMember(self.config(worker_id, **env))
        self._members.append(member)
        return member

    def joining(self, worker_id: int, **env: str) -> Future[Worker]:
        return self.background(self.worker(worker_id, **env).join)

    def background(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(work)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.client.close()
        for member in self._members:
            member.close()
        for process in self._processes:
            process.end()
        self.listener.close()
        self._pool.shutdown()
        if kind is not None:
            for process in self._processes:
                print(f"--- {process.popen.args}\n{process.output}")


@contextmanager
def running(
    workers: int, servers: int, **env: str
) -> Iterator[tuple[Job, Process, list[Process], list[Worker]]]:
    """A complete job: everybody has joined."""
    with Job(workers, servers, **env) as job:
        scheduler = job.scheduler()
        others = [job.server(BYTEPS_LOG_LEVEL="INFO") for _ in range(servers)]
        coming = [job.joining(number) for number in range(workers)]
        here = [future.result(LIMIT_S) for future in coming]
        for server in others:
            server.expect("epoch 1 runs")
        yield job, scheduler, others, here
