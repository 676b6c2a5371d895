"""When a job ends, who gets which signal, and with which code: pure, driven by events and a clock.

A job passes through these phases, only downwards. Every phase but the first has a deadline.

    phase         entered when                          who may still run            at its deadline
    ------------  ------------------------------------  ---------------------------  ---------------
    RUNNING       the processes were started            all                          (none)
    DRAINING      every worker ended with 0             scheduler, servers: they     TERMINATING
                                                        notice and end with 0
    LEAVING       a process failed; its code counts     the rest: they notice and    TERMINATING
                                                        say what they lost
    INTERRUPTED   we got a signal; the workers got it   workers may clean up; then   KILLING
                  from us                               the rest gets SIGTERM
    TERMINATING   SIGTERM was sent to all               those that clean up          KILLING
    KILLING       SIGKILL was sent to all               those the kernel holds       DONE
    DONE          nobody runs                           nobody

The code of the job is that of the first process that failed while RUNNING or DRAINING: what ends later ends
because of it, or because of us. Unless that one blames another: then it is the next one that does not, until
we send a signal. After a signal n it is 128+n, unless every worker chose to end with 0.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Abandoned", "Ended", "Event", "NotStarted", "Phase", "Send", "Signalled", "State", "Step", "Tick"]
__all__ += ["Times", "begin", "exit_code", "how", "step"]


class Phase(enum.IntEnum):
    """See the table above."""

    RUNNING = 0
    DRAINING = 1
    LEAVING = 2
    INTERRUPTED = 3
    TERMINATING = 4
    KILLING = 5
    DONE = 6


@dataclass(frozen=True)
class Times:
    """How long each phase may last, in seconds. Whatever ends a job, after 3 s nothing of it is left."""

    drain_s: float = 2.0
    leave_s: float = 2.0  # a lost peer is noticed and named within this
    stop_s: float = 2.5  # after a signal: the user's program may write what it must keep
    term_s: float = 0.6  # after one of the first two
    kill_s: float = 2.0
    repeat_s: float = 0.5  # signals this close are one wish: some programs signal a process, then its group


@dataclass(frozen=True)
class State:
    """All that is known of a job's end. Processes are numbered in the order of their plan."""

    names: tuple[str, ...]
    phase: Phase
    running: frozenset[int]
    workers: frozenset[int]
    deadline: float | None = None
    first: tuple[int, int] | None = None  # process and code of the failure that counts
    first_blames: bool = False  # it failed because another one did
    signal: int = 0  # the signal that ended the job
    signal_at: float = 0.0
    worker_failed: bool = False


@dataclass(frozen=True)
class Ended:
    """A process ended; ``code`` as a shell counts it: 128+n for signal n. ``blames``: of a peer's failure."""

    process: int
    code: int
    blames: bool = False


@dataclass(frozen=True)
class NotStarted:
    """A process could not be started, so the job cannot be."""

    process: int
    code: int


@dataclass(frozen=True)
class Signalled:
    """The launcher got a signal that asks it to end (SIGPIPE: the reader of its output is gone)."""

    number: int


@dataclass(frozen=True)
class Abandoned:
    """Whoever asked for this job is gone without a word: nobody waits for a polite end."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = Ended | NotStarted | Signalled | Abandoned | Tick


@dataclass(frozen=True)
class Send:
    """A signal to send to the process groups of some processes."""

    number: int
    processes: frozenset[int]


Step = tuple[State, Send | None, str]  # the new state, what to do, and why (empty: nothing worth a line)


def begin(names: Iterable[str], workers: Iterable[int], running: Iterable[int]) -> State:
    """The state of a job of which the ``running`` processes have been started."""
    return State(tuple(names), Phase.RUNNING, frozenset(running), frozenset(workers))


def how(code: int) -> str:
    """How a process with this code ended, in words.

    >>> how(3), how(137)
    ('exited with code 3', 'was ended by SIGKILL (code 137)')
    """
    try:
        return f"was ended by {signal.Signals(code - 128).name} (code {code})"
    except ValueError:
        return f"exited with code {code}"


def exit_code(state: State) -> int:
    """The code of the whole job."""
    if state.first is not None:
        return state.first[1]
    if state.signal and state.worker_failed:
        return 128 + state.signal
    return 0


def step(now: float, state: State, event: Event, times: Times) -> Step:
    """What an event changes, what to send, and the reason."""
    if state.phase is Phase.DONE:
        return state, None, ""
    if isinstance(event, Ended):
        return _ended(now, state, event, times)
    if isinstance(event, NotStarted):
        return _stop(now, replace(state, first=(event.process, event.code)), times, "")
    if isinstance(event, Signalled):
        return _signalled(now, state, event.number, times)
    if isinstance(event, Abandoned):
        return _kill(now, state, times, "")
    return _tick(now, state, times)


def _ended(now: float, state: State, event: Ended, times: Times) -> Step:
    running = state.running - {event.process}
    is_worker = event.process in state.workers
    failed = event.code != 0 and state.phase <= Phase.DRAINING
    cause = event.code != 0 and state.phase is Phase.LEAVING and state.first_blames and not event.blames
    state = replace(
        state,
        running=running,
        first=(event.process, event.code) if failed or cause else state.first,
        first_blames=event.blames if failed or cause else state.first_blames,
        worker_failed=state.worker_failed or (is_worker and event.code != 0),
    )
    if not running:
        return replace(state, phase=Phase.DONE, deadline=None), None, ""
    if failed:
        name = state.names[event.process]
        reason = f"{name} {how(event.code)}; the others have {times.leave_s:g} s to end by themselves"
        return replace(state, phase=Phase.LEAVING, deadline=now + times.leave_s), None, reason
    last_worker = is_worker and not running & state.workers
    if last_worker and state.phase is Phase.RUNNING:
        return replace(state, phase=Phase.DRAINING, deadline=now + times.drain_s), None, ""
    if last_worker and state.phase is Phase.INTERRUPTED:  # the deadline stays
        return state, Send(signal.SIGTERM, running), ""
    return state, None, ""


def _signalled(now: float, state: State, number: int, times: Times) -> Step:
    if state.signal and now - state.signal_at < times.repeat_s:
        return state, None, ""
    name = signal.Signals(number).name
    second = state.signal or state.phase >= Phase.TERMINATING
    state = replace(state, signal=state.signal or number, signal_at=now)
    if second:
        return _kill(now, state, times, f"{name} again; killing {_still(state)}")
    if state.phase is Phase.LEAVING:
        return _stop(now, state, times, f"{name}; ending {_still(state)}")
    targets = (state.running & state.workers) or state.running
    reason = f"{name}; passed on, what still runs after {times.stop_s:g} s or a second signal is killed"
    passed_on = signal.SIGTERM if number == signal.SIGPIPE else number  # our pipe, not theirs
    state = replace(state, phase=Phase.INTERRUPTED, deadline=now + times.stop_s)
    return state, Send(passed_on, targets), reason


def _tick(now: float, state: State, times: Times) -> Step:
    if state.deadline is None or now < state.deadline:
        return state, None, ""
    if state.phase is Phase.DRAINING:
        return _stop(now, state, times, f"no worker runs any more; ending {_still(state)}")
    if state.phase is Phase.LEAVING:
        return _stop(now, state, times, f"ending {_still(state)}")
    if state.phase is Phase.KILLING:
        reason = f"the kernel holds {_still(state)}, not even SIGKILL ends it"
        return replace(state, phase=Phase.DONE, deadline=None), None, reason
    given_s = times.term_s if state.phase is Phase.TERMINATING else times.stop_s
    return _kill(now, state, times, f"killing {_still(state)}: it did not end within {given_s:g} s")


def _still(state: State) -> str:
    return ", ".join(state.names[process] for process in sorted(state.running))


def _stop(now: float, state: State, times: Times, reason: str) -> Step:
    if not state.running:
        return replace(state, phase=Phase.DONE, deadline=None), None, reason
    state = replace(state, phase=Phase.TERMINATING, deadline=now + times.term_s)
    return state, Send(signal.SIGTERM, state.running), reason


def _kill(now: float, state: State, times: Times, reason: str) -> Step:
    # A worker that has to be killed did not choose to end with 0, whatever the kernel reports later.
    failed = state.worker_failed or bool(state.running & state.workers)
    state = replace(state, phase=Phase.KILLING, deadline=now + times.kill_s, worker_failed=failed)
    return state, Send(signal.SIGKILL, state.running), reason
