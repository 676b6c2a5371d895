"""The event loop around the processes of a job: starts them, passes signals on, and ends what must end.

One thread and one selector: output, exits, signals and deadlines are all events, and nothing polls. What to
do about an event is decided in ``ending``; output is moved by ``display``.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from byteps.control import blame
from byteps.errors import ConfigError
from byteps.launcher import ending, here, reap
from byteps.launcher.display import Display
from byteps.launcher.ear import Ear
from byteps.launcher.ending import Phase
from byteps.launcher.guard import PASSED_ON, heeded
from byteps.launcher.log_files import LogFiles
from byteps.launcher.plan import ProcessSpec
from byteps.observe.logging import LEVELS

__all__ = ["SWEEP_S", "Supervisor", "earliest", "run", "strangers"]

WRONG_USE = 2
SWEEP_S = 0.3  # what a process leaves behind may take this long to clean up after it


def run(
    specs: Sequence[ProcessSpec],
    environ: Mapping[str, str],
    *,
    stdin: bool = True,
    front_gone: int | None = None,
    times: ending.Times | None = None,
    logs: LogFiles | None = None,
) -> int:
    """Start the processes, wait for their end, and return the exit code of the job.

    The output of a single process is left alone unless it is logged; that of several is labelled.
    ``logs`` gets all of it, one file for each of ``specs``. ``front_gone`` becomes readable
    when everything must be killed. It takes over the signals and all children of this process, which should
    do nothing else and must have one thread (see ``guard.guarded``).
    """
    return Supervisor(specs, environ, stdin, front_gone, times or ending.Times(), logs).run()


def earliest(*deadlines: float | None) -> float | None:
    """The first of several deadlines, of which some are none."""
    return min((each for each in deadlines if each is not None), default=None)


def strangers(specs: Sequence[ProcessSpec]) -> int:
    """How many ranks a job has whose ranks should know each other: Python programs. Else 0.

    Only where rank 0 is started: a job that is started in parts says it once.
    """
    for spec in specs:
        if spec.env.get("RANK") == "0" and spec.role == "worker":
            python = any(Path(word).name.startswith("python") or word.endswith(".py") for word in spec.argv)
            ranks = int(spec.env["WORLD_SIZE"])
            return ranks if python and ranks > 1 else 0
    return 0


class Supervisor:
    """A job on this machine. ``fleet`` and ``agent`` make of it one whose processes are elsewhere."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        environ: Mapping[str, str],
        stdin: bool,
        front_gone: int | None,
        times: ending.Times,
        logs: LogFiles | None = None,
    ) -> None:
        self._specs = specs
        self._environ = environ
        self._stdin = stdin
        self._times = times
        self._logs = logs
        self._labelled = len(specs) > 1 or logs is not None
        level = environ.get("BYTEPS_LOG_LEVEL", "").upper()
        self._verbose = LEVELS.get(level, logging.WARNING) <= logging.INFO
        self._begun = time.monotonic()
        self._names = [spec.label for spec in specs]
        self._workers = [place for place, spec in enumerate(specs) if spec.role == "worker"]
        self._state = ending.begin(self._names, self._workers, ())
        self._pids: dict[int, int] = {}  # of running processes
        self._pidfds: dict[int, int] = {}
        self._failed: dict[int, int] = {}  # codes other than 0, in the order of the ends
        self._joined = False  # whether a worker called init()
        self._alone = False  # whoever started this job is gone
        self._selector = selectors.DefaultSelector()
        self._ear = Ear(self._selector, self._told)
        order = sorted(range(len(specs)), key=lambda place: (specs[place].role != "worker", place))
        self._display = self._open_display(order)
        if front_gone is not None:
            self._selector.register(front_gone, selectors.EVENT_READ, lambda: self._abandoned(front_gone))

    def _open_display(self, order: Sequence[int]) -> Display:
        return Display(
            self._names,
            order,
            self._environ,
            self._selector,
            self._hung_up,
            self._logs,
            all_at_once=self._verbose,
        )

    # ---- life of a job

    def run(self) -> int:
        """Start the processes, wait for their end, and return the exit code of the job."""
        reap.become_subreaper()
        self._take_signals()
        self._start_all()
        while self._state.phase is not Phase.DONE:
            self._wait(self._deadline())
            self._tick()
        left = self._sweep()
        if self._alone:
            return 1  # to no one; waiting for a reader of the output would leave this process behind
        self._display.drain()
        if left:
            self._display.note(f"processes that the kernel would not end: {', '.join(map(str, left))}")
        self._summary()
        for number in heeded():
            signal.signal(number, signal.SIG_DFL)  # a reader that never reads must not make us immortal
        self._display.finish()
        return ending.exit_code(self._state)

    def _wait(self, deadline: float | None) -> None:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        for key, _ in self._selector.select(timeout):
            key.data()

    def _deadline(self) -> float | None:
        return earliest(self._state.deadline, self._shown_by())

    def _shown_by(self) -> float | None:
        """When tracebacks that wait must be shown; those of a job that ends wait until it is judged."""
        return self._display.deadline if self._state.phase <= Phase.DRAINING else None

    def _tick(self) -> None:
        if self._shown_by() is not None:
            self._display.tick()
        self._handle(ending.Tick())

    def _sweep(self) -> list[int]:
        return reap.sweep(SWEEP_S)

    def _start_all(self) -> None:
        error = self._prepare()
        for place, spec in enumerate(self._specs):
            if error is not None:
                break
            try:
                self._pids[place] = self._start(place, spec)
            except here.StartError as failure:
                error = failure
                break
            except OSError as failure:  # no pipe for its output
                error = here.start_error(spec, failure)
                break
            self._watch_exit(place)
        self._state = ending.begin(self._names, self._workers, self._pids)
        if error is not None:
            self._display.note(str(error))
            self._handle(ending.NotStarted(len(self._pids), error.code))

    def _prepare(self) -> here.StartError | None:
        """Give the processes their places on this machine, or say why that cannot be."""
        try:
            self._specs, _ = here.prepare(self._specs, self._environ)
        except ConfigError as error:
            return here.StartError(str(error), WRONG_USE)
        return None

    def _start(self, place: int, spec: ProcessSpec) -> int:
        pipes = self._display.open(place) if self._labelled else None
        out, err = pipes or (None, None)
        told = self._ear.open(place)
        env = {**spec.env, "BYTEPS_BLAME": blame.describe(told)}
        spec = replace(spec, env=env, fds=(*spec.fds, told))
        try:
            return here.start(spec, self._environ, stdin=self._stdin, out=out, err=err)
        finally:
            for fd in (*(pipes or ()), *spec.fds):  # ours would keep a pipe or a port open after its end
                os.close(fd)

    def _watch_exit(self, place: int) -> None:
        # The kernel reports these in the order of the ends, so of two failures it is known which came first.
        # Kernels before 5.3 have none of them: there SIGCHLD has to do.
        try:
            self._pidfds[place] = fd = os.pidfd_open(self._pids[place])
        except OSError:
            return
        self._selector.register(fd, selectors.EVENT_READ, lambda: self._collect(place))

    def _summary(self) -> None:
        state, elapsed = self._state, f"{time.monotonic() - self._begun:.1f} s"
        found = ending.judgement(state)
        if found is not None:
            place = found.process
            if place is None and not found.who:  # nobody is the reason: who failed first tells most
                place = next(iter(self._failed), None)
            if place is not None:
                self._display.last_words(place, self._names[place])
            self._display.note(f"failed after {elapsed}: {found}{self._others(place)}{self._where()}")
        elif state.signal:
            self._display.interrupted()
            name = signal.Signals(state.signal).name
            self._display.note(f"ended by {name} after {elapsed}{self._where()}")
        elif self._labelled:
            self._display.release()
            roles = Counter(spec.role for spec in self._specs)
            members = ", ".join(f"{n} {role}{'s' * (n > 1)}" for role, n in roles.items())
            self._display.note(f"done in {elapsed}: {members}{self._where()}")
        if found is None and not state.signal and not self._joined and (ranks := strangers(self._specs)):
            self._display.note(
                f"warning: none of the {ranks} ranks called byteps.init(), as far as is known here: each ran "
                "for itself, and nothing was averaged; call bps.init() in the script"
            )

    def _others(self, culprit: int | None) -> str:
        """Of those that ended after the culprit: how, or where to find what they said."""
        if not self._verbose:
            unsaid = self._display.unsaid()
            if not unsaid or self._logs is not None:
                return ""
            others = "another process said" if unsaid == 1 else f"{unsaid} others said"
            return f" (what {others} of it: --log-dir DIR or BYTEPS_LOG_LEVEL=INFO)"
        also = [f"{self._names[k]} {ending.how(self._failed[k])}" for k in self._failed if k != culprit]
        return f"; after it, {', '.join(also)}" if also else ""

    def _where(self) -> str:
        """Where the output is kept."""
        if self._logs is None:
            return ""
        return f"; logs in {self._logs.folder}" + (f" ({self._logs.error})" if self._logs.error else "")

    # ---- events

    def _handle(self, event: ending.Event) -> None:
        if isinstance(event, ending.Told) and isinstance(event.statement, blame.Joined):
            self._joined |= event.statement.who.role == "worker"
        before = self._state.phase
        self._state, send, reason = ending.step(time.monotonic(), self._state, event, self._times)
        # A command alone knows what it got. That a job ends is said at its end; that one is killed, at once.
        unusual = before is Phase.DRAINING or self._state.phase >= Phase.KILLING
        if reason and (unusual or self._verbose) and (self._labelled or before > Phase.RUNNING):
            self._display.note(reason)
        if send is not None:
            self._signal(send.number, send.processes)

    def _signal(self, number: int, places: Iterable[int]) -> None:
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._find_stopped(places)
        for place in places:
            for group in self._groups(place, number):
                try:
                    os.killpg(group, number)
                except (ProcessLookupError, PermissionError):  # it has just ended, or changed its user
                    pass

    def _find_stopped(self, places: Iterable[int]) -> None:
        """Who is stopped cannot end by itself; that is worth a word if it was lost to the others."""
        found = reap.stopped([self._pids[place] for place in places])
        for place in places:
            if self._pids[place] in found:
                self._handle(ending.Halted(place, found[self._pids[place]]))

    def _groups(self, place: int, number: int) -> list[int]:
        """The process groups that a signal is for. gdb takes most signals for orders to itself."""
        own = self._pids[place]
        if not self._specs[place].debugged or number in (signal.SIGKILL, signal.SIGCONT):
            return [own]
        return reap.groups(reap.descendants(own)) or [own]

    def _collect(self, place: int) -> None:
        process, status = os.waitpid(self._pids[place], os.WNOHANG)
        if not process:
            return
        del self._pids[place]
        if place in self._pidfds:
            fd = self._pidfds.pop(place)
            self._selector.unregister(fd)
            os.close(fd)
        code = reap.shell_code(status)
        self._ear.catch_up()
        if code and self._state.phase < Phase.TERMINATING:  # later it is our doing
            self._failed[place] = code
        self._handle(ending.Ended(place, code))

    def _told(self, place: int, statement: blame.Statement) -> None:
        self._handle(ending.Told(place, statement, statement.who.role == self._specs[place].role))

    def _own(self) -> Collection[int]:
        """Children that we collect ourselves; the others are orphans."""
        return self._pids.values()

    def _take_signals(self) -> None:
        """Turn signals into bytes on a descriptor of the selector; those that waited are not lost."""
        numbers = [*heeded(), signal.SIGCHLD]
        self._signals, wakeup = os.pipe()
        for fd in (self._signals, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        self._selector.register(self._signals, selectors.EVENT_READ, self._signalled)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def _signalled(self) -> None:
        for number in os.read(self._signals, 4096):
            if number == signal.SIGCHLD:
                for place in [place for place in self._pids if place not in self._pidfds]:
                    self._collect(place)
                reap.reap_orphans(self._own())
            elif number == signal.SIGTSTP:
                self._signal(signal.SIGSTOP, self._state.running)
                os.kill(os.getpid(), signal.SIGSTOP)  # here until the front continues us
                self._signal(signal.SIGCONT, self._state.running)
            elif number in PASSED_ON:
                self._handle(ending.Signalled(number))

    def _hung_up(self) -> None:
        if self._state.phase is Phase.RUNNING:
            self._handle(ending.Signalled(signal.SIGPIPE))

    def _abandoned(self, fd: int) -> None:
        self._selector.unregister(fd)
        self._alone = True
        self._handle(ending.Abandoned())
