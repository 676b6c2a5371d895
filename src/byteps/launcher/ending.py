"""When a job ends, who gets which signal, and with which code: pure, driven by events and a clock.

A job passes through these phases, only downwards. Every phase but the first has a deadline.

    phase         entered when                          who may still run            at its deadline
    ------------  ------------------------------------  ---------------------------  ---------------
    RUNNING       the processes were started            all                          none; after a
                                                                                     verdict LEAVING
    DRAINING      every worker ended with 0             scheduler, servers: they     TERMINATING
                                                        notice and end with 0
    LEAVING       a process failed, or a verdict says   the rest: they notice and    TERMINATING
                  that one is lost                      say what they lost
    INTERRUPTED   we got a signal; the workers got it   workers may clean up; then   KILLING
                  from us                               the rest gets SIGTERM
    TERMINATING   SIGTERM was sent to all               those that clean up          KILLING
    KILLING       SIGKILL was sent to all               those the kernel holds       DONE
    DONE          nobody runs                           nobody

The code of the job is that of the culprit (``culprit``), judged by what was seen and heard until we sent a
signal: what ends later ends because of us. After a signal n it is 128+n, unless every worker chose to end
with 0. A verdict about a process that has ended with 0 ends nothing: those that still need it will fail, and
those that do not should be left to finish.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace

from byteps.control.blame import Noticed, Verdict
from byteps.control.sentences import was_lost
from byteps.launcher import culprit
from byteps.launcher.facts import Ended, Fact, Halted, NotStarted, Told, how

__all__ = ["Abandoned", "Ended", "Event", "Halted", "NotStarted", "Phase", "Send", "Signalled", "State"]
__all__ += ["Step", "Tick", "Times", "Told", "begin", "exit_code", "how", "judgement", "step"]


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
    settle_s: float = 0.5  # a process that is lost to the others may end with 0 within this
    repeat_s: float = 0.5  # signals this close are one wish: some programs signal a process, then its group


@dataclass(frozen=True)
class State:
    """All that is known of a job's end. Processes are numbered in the order of their plan."""

    names: tuple[str, ...]
    phase: Phase
    running: frozenset[int]
    workers: frozenset[int]
    deadline: float | None = None
    facts: tuple[Fact, ...] = ()  # what may count against somebody, in the order in which it became known
    signal: int = 0  # the signal that ended the job
    signal_at: float = 0.0
    worker_failed: bool = False


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


Event = Fact | Signalled | Abandoned | Tick


@dataclass(frozen=True)
class Send:
    """A signal to send to the process groups of some processes."""

    number: int
    processes: frozenset[int]


Step = tuple[State, Send | None, str]  # the new state, what to do, and why (empty: nothing worth a line)


def begin(names: Iterable[str], workers: Iterable[int], running: Iterable[int]) -> State:
    """The state of a job of which the ``running`` processes have been started."""
    return State(tuple(names), Phase.RUNNING, frozenset(running), frozenset(workers))


def judgement(state: State) -> culprit.Judgement | None:
    """Who is the reason that the job failed, as far as is known now."""
    return culprit.judge(state.names, state.workers, state.facts)


def exit_code(state: State) -> int:
    """The code of the whole job."""
    found = judgement(state)
    if found is not None:
        return found.code
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
        return _stop(now, _with(state, event), times, "")
    if isinstance(event, Told):
        return _told(now, state, event, times)
    if isinstance(event, Halted):
        return _with(state, event), None, ""
    if isinstance(event, Signalled):
        return _signalled(now, state, event.number, times)
    if isinstance(event, Abandoned):
        return _kill(now, state, times, "")
    return _tick(now, state, times)


def _with(state: State, fact: Fact) -> State:
    return replace(state, facts=(*state.facts, fact))


def _ended(now: float, state: State, event: Ended, times: Times) -> Step:
    running = state.running - {event.process}
    is_worker = event.process in state.workers
    if state.phase <= Phase.LEAVING:
        state = _with(state, event)
    failed = state.worker_failed or (is_worker and event.code != 0)
    state = replace(state, running=running, worker_failed=failed)
    if not running:
        return replace(state, phase=Phase.DONE, deadline=None), None, ""
    if event.code and state.phase <= Phase.DRAINING:
        end = f"{state.names[event.process]} {how(event.code)}{_because(state, event.process)}"
        return _leave(now, state, times.leave_s, end)
    last_worker = is_worker and not running & state.workers
    if last_worker and state.phase is Phase.RUNNING:
        return replace(state, phase=Phase.DRAINING, deadline=now + times.drain_s), None, ""
    if last_worker and state.phase is Phase.INTERRUPTED:  # the deadline stays
        return state, Send(signal.SIGTERM, running), ""
    return state, None, ""


def _because(state: State, process: int) -> str:
    """Whom this process had lost before it ended, so that nobody takes it for the reason."""
    for fact in state.facts:
        if not isinstance(fact, Told) or (fact.process, fact.own) != (process, True):
            continue
        if isinstance(fact.statement, Noticed):
            about = fact.statement.about
            return f": {fact.statement.text}" if about is None else f", because {was_lost(about)}"
    return ""


def _told(now: float, state: State, event: Told, times: Times) -> Step:
    if state.phase > Phase.LEAVING:  # it may speak of our own signal
        return state, None, ""
    state = _with(state, event)
    if isinstance(event.statement, Verdict) and state.phase is Phase.RUNNING and state.deadline is None:
        return replace(state, deadline=now + times.settle_s), None, ""
    return state, None, ""


def _leave(now: float, state: State, leave_s: float, reason: str) -> Step:
    state = replace(state, phase=Phase.LEAVING, deadline=now + leave_s)
    return state, None, f"{reason}; the others have {leave_s:g} s to end by themselves"


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
    if state.phase is Phase.RUNNING:
        found = judgement(state)
        if found is None or _ended_well(state, found.process):
            return replace(state, deadline=None), None, ""
        return _leave(now, state, times.leave_s - times.settle_s, str(found))
    if state.phase is Phase.DRAINING:
        return _stop(now, state, times, f"no worker runs any more; ending {_still(state)}")
    if state.phase is Phase.LEAVING:
        return _stop(now, state, times, f"ending {_still(state)}")
    if state.phase is Phase.KILLING:
        reason = f"the kernel holds {_still(state)}, not even SIGKILL ends it"
        return replace(state, phase=Phase.DONE, deadline=None), None, reason
    given_s = times.term_s if state.phase is Phase.TERMINATING else times.stop_s
    return _kill(now, state, times, f"killing {_still(state)}: it did not end within {given_s:g} s")


def _ended_well(state: State, process: int | None) -> bool:
    return any(isinstance(fact, Ended) and (fact.process, fact.code) == (process, 0) for fact in state.facts)


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
