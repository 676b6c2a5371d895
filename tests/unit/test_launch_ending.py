"""When a job ends, who gets which signal and which code counts: events and a clock, no processes."""

from __future__ import annotations

import signal

import pytest

from byteps.control.blame import Failed, Joined, Noticed, Verdict, Whom
from byteps.launcher import supervise
from byteps.launcher.ending import (
    Abandoned,
    Ended,
    Event,
    Halted,
    NotStarted,
    Phase,
    Send,
    Signalled,
    State,
    Tick,
    Times,
    Told,
    begin,
    exit_code,
    how,
    judgement,
    step,
)

NAMES = ("scheduler", "server 0", "worker 0", "worker 1")
SCHEDULER, SERVER, WORKER_0, WORKER_1 = range(4)
TIMES = Times(drain_s=10, leave_s=2, stop_s=3, term_s=3, kill_s=1, repeat_s=0.5)
WHO = [Whom("scheduler", 0), Whom("server", 0), Whom("worker", 0), Whom("worker", 1)]
FORMED = [Told(place, Joined(who)) for place, who in enumerate(WHO)]
TERM, KILL, INT = signal.SIGTERM, signal.SIGKILL, signal.SIGINT


class Job:
    """A job at a time of its own; remembers what was sent and why."""

    def __init__(self) -> None:
        self.state: State = begin(NAMES, [WORKER_0, WORKER_1], range(4))
        self.sent: list[Send] = []
        self.reasons: list[str] = []

    def at(self, now: float, *events: Event) -> Job:
        for event in events:
            self.state, send, reason = step(now, self.state, event, TIMES)
            self.sent += [send] if send else []
            self.reasons += [reason] if reason else []
        return self

    @property
    def code(self) -> int:
        return exit_code(self.state)

    @property
    def culprit(self) -> str:
        return str(judgement(self.state) or "")


def to(number: int, *processes: int) -> Send:
    return Send(number, frozenset(processes))


def test_all_end_by_themselves() -> None:
    job = Job().at(1, Ended(WORKER_1, 0), Ended(WORKER_0, 0))
    assert (job.state.phase, job.state.deadline) == (Phase.DRAINING, 11)
    job.at(2, Ended(SCHEDULER, 0), Ended(SERVER, 0), Tick())
    assert (job.state.phase, job.code, job.sent, job.reasons) == (Phase.DONE, 0, [], [])


def test_services_that_stay_are_ended_and_do_not_count() -> None:
    job = Job().at(1, Ended(WORKER_0, 0), Ended(WORKER_1, 0)).at(10.9, Tick())
    assert job.sent == []
    job.at(11, Tick())
    assert job.sent == [to(TERM, SCHEDULER, SERVER)]
    assert job.reasons == ["no worker runs any more; ending scheduler, server 0"]
    job.at(12, Ended(SERVER, 143)).at(14, Tick())
    assert job.sent[1:] == [to(KILL, SCHEDULER)]
    job.at(14, Ended(SCHEDULER, 137))
    assert (job.state.phase, job.code) == (Phase.DONE, 0)


def test_a_service_that_fails_after_the_workers_counts() -> None:
    job = Job().at(1, Ended(WORKER_0, 0), Ended(WORKER_1, 0), Ended(SERVER, 1))
    assert (job.state.phase, job.code) == (Phase.LEAVING, 1)


@pytest.mark.parametrize("first", range(4))
def test_the_first_failure_counts(first: int) -> None:
    job = Job().at(1, Ended(first, 7))
    assert (job.state.phase, job.state.deadline, job.sent) == (Phase.LEAVING, 3, [])
    assert job.reasons == [f"{NAMES[first]} exited with code 7; the others have 2 s to end by themselves"]
    job.at(2, *(Ended(other, 1) for other in range(4) if other != first))
    assert (job.state.phase, job.code, job.culprit) == (Phase.DONE, 7, f"{NAMES[first]} exited with code 7")


def noticed(process: int, about: int) -> Told:
    return Told(process, Noticed(WHO[process], WHO[about], "its connection closed"))


def verdict(about: int) -> Told:
    return Told(SCHEDULER, Verdict(WHO[SCHEDULER], WHO[about], "no heartbeat"))


def test_who_noticed_another_does_not_count_when_the_cause_ends_later() -> None:
    job = Job().at(1, *FORMED, noticed(SERVER, WORKER_1), noticed(WORKER_0, WORKER_1))
    assert (job.state.phase, job.reasons) == (Phase.RUNNING, [])  # they may still do something about it
    job.at(1, Ended(SERVER, 1), Ended(WORKER_0, 1))
    lost = "because worker 1 was lost"
    assert job.reasons == [f"server 0 exited with code 1, {lost}; the others have 2 s to end by themselves"]
    job.at(2, Ended(WORKER_1, 7), Ended(SCHEDULER, 9))
    assert (job.state.phase, job.code, job.culprit) == (Phase.DONE, 7, "worker 1 exited with code 7")


def test_who_noticed_another_gives_the_code_when_nobody_else_failed() -> None:
    job = Job().at(1, *FORMED, Ended(WORKER_1, 0), noticed(WORKER_0, WORKER_1), Ended(WORKER_0, 5))
    job.at(3, Tick()).at(3, Ended(SERVER, 143), Ended(SCHEDULER, 143))  # by our signal
    assert (job.state.phase, job.code) == (Phase.DONE, 5)
    assert job.culprit.startswith("worker 1 exited with code 0 too early")


def test_a_verdict_ends_the_job_though_nobody_has_ended() -> None:
    job = Job().at(1, *FORMED, verdict(WORKER_1))
    assert (job.state.phase, job.state.deadline, job.sent) == (Phase.RUNNING, 1.5, [])
    job.at(1.5, Tick())
    assert (job.state.phase, job.state.deadline) == (Phase.LEAVING, 3)
    assert job.reasons == ["worker 1 was lost: no heartbeat; the others have 1.5 s to end by themselves"]
    job.at(2, *(Ended(process, 0) for process in (SCHEDULER, SERVER, WORKER_0))).at(3, Tick())
    assert job.sent == [to(TERM, WORKER_1)]
    job.at(3, Halted(WORKER_1, 13)).at(6, Tick()).at(6, Ended(WORKER_1, 137))
    assert (job.state.phase, job.code) == (Phase.DONE, 1)
    assert job.culprit == "worker 1 was lost: no heartbeat; its process 13 is stopped (SIGSTOP)"


@pytest.mark.parametrize("ended_first", [False, True])
def test_a_verdict_about_one_that_ended_with_0_ends_nothing(ended_first: bool) -> None:
    events = [verdict(WORKER_1), Ended(WORKER_1, 0)]
    job = Job().at(1, *FORMED, *(reversed(events) if ended_first else events)).at(1.5, Tick()).at(9, Tick())
    assert (job.state.phase, job.state.deadline, job.sent) == (Phase.RUNNING, None, [])
    job.at(10, Ended(WORKER_0, 0), Ended(SERVER, 0), Ended(SCHEDULER, 0))
    assert (job.state.phase, job.code) == (Phase.DONE, 0)


def test_what_is_said_after_our_signal_counts_for_nothing() -> None:
    stopped = Told(SERVER, Failed(WHO[SERVER], "it got SIGTERM", 143))
    job = Job().at(1, *FORMED, Signalled(INT), stopped, verdict(SERVER), Ended(WORKER_0, 130))
    job.at(2, Ended(WORKER_1, 130), Ended(SERVER, 143), Ended(SCHEDULER, 143))
    assert (job.state.phase, job.code, job.culprit) == (Phase.DONE, 130, "")


def test_a_worker_that_ends_with_0_early_is_no_reason_to_end() -> None:
    job = Job().at(1, Ended(WORKER_0, 0), Tick()).at(1e9, Tick())
    assert (job.state.phase, job.state.deadline) == (Phase.RUNNING, None)


def test_who_does_not_notice_is_ended_then_killed() -> None:
    job = Job().at(1, Ended(WORKER_0, 7)).at(3, Tick()).at(6, Tick())
    assert job.sent == [to(TERM, SCHEDULER, SERVER, WORKER_1), to(KILL, SCHEDULER, SERVER, WORKER_1)]
    job.at(7, Tick())
    assert (job.state.phase, job.code) == (Phase.DONE, 7)
    assert job.reasons[-1] == "the kernel holds scheduler, server 0, worker 1, not even SIGKILL ends it"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_the_workers_then_the_services_end(number: signal.Signals) -> None:
    job = Job().at(5, Signalled(number))
    assert (job.sent, job.state.phase, job.state.deadline) == (
        [to(number, WORKER_0, WORKER_1)],
        Phase.INTERRUPTED,
        8,
    )
    job.at(6, Ended(WORKER_0, 128 + number))
    assert len(job.sent) == 1
    job.at(6, Ended(WORKER_1, 1))
    assert job.sent[1:] == [to(TERM, SCHEDULER, SERVER)]
    job.at(6, Ended(SERVER, 143), Ended(SCHEDULER, 143))
    assert (job.state.phase, job.code) == (Phase.DONE, 128 + number)


def test_workers_that_end_well_after_a_signal_are_believed() -> None:
    job = Job().at(5, Signalled(TERM)).at(6, *(Ended(process, 0) for process in (2, 3, 0, 1)))
    assert (job.state.phase, job.code) == (Phase.DONE, 0)


def test_workers_that_ignore_a_signal_are_killed() -> None:
    job = Job().at(5, Signalled(TERM)).at(7.9, Tick()).at(8, Tick())
    assert job.sent[1:] == [to(KILL, 0, 1, 2, 3)]
    job.at(8, *(Ended(process, 137) for process in range(4)))
    assert (job.state.phase, job.code) == (Phase.DONE, 143)


def test_a_second_signal_kills_but_the_same_one_at_once_does_not() -> None:
    job = Job().at(5, Signalled(INT)).at(5.1, Signalled(INT))
    assert job.sent == [to(INT, WORKER_0, WORKER_1)]
    job.at(6, Signalled(INT))
    assert job.sent[1:] == [to(KILL, 0, 1, 2, 3)]
    assert job.at(6, *(Ended(process, 137) for process in range(4))).code == 130


def test_a_signal_after_a_failure_shortens_the_wait_and_keeps_the_code() -> None:
    job = Job().at(1, Ended(WORKER_0, 7)).at(2, Signalled(INT))
    assert job.sent == [to(TERM, SCHEDULER, SERVER, WORKER_1)]
    assert job.at(3, *(Ended(process, 143) for process in (0, 1, 3))).code == 7


def test_a_signal_while_draining_goes_to_the_services() -> None:
    job = Job().at(1, Ended(WORKER_0, 0), Ended(WORKER_1, 0)).at(2, Signalled(TERM))
    assert job.sent == [to(TERM, SCHEDULER, SERVER)]
    assert job.at(3, Ended(SCHEDULER, 143), Ended(SERVER, 143)).code == 0


def test_a_reader_that_is_gone_ends_the_job_with_sigterm_and_141() -> None:
    job = Job().at(1, Signalled(signal.SIGPIPE))
    assert job.sent == [to(TERM, WORKER_0, WORKER_1)]
    assert job.at(2, *(Ended(process, 143) for process in (2, 3, 0, 1))).code == 141


def test_what_cannot_be_started_ends_what_was() -> None:
    job = Job()
    job.state = begin(NAMES, [WORKER_0, WORKER_1], [SCHEDULER, SERVER])
    job.at(1, NotStarted(WORKER_0, 127))
    assert job.sent == [to(TERM, SCHEDULER, SERVER)]
    job.at(2, Ended(SCHEDULER, 143), Ended(SERVER, 143))
    assert (job.state.phase, job.code) == (Phase.DONE, 127)


def test_nothing_was_started() -> None:
    state, send, _ = step(1, begin(NAMES, [2, 3], []), NotStarted(0, 126), TIMES)
    assert (state.phase, send, exit_code(state)) == (Phase.DONE, None, 126)


def test_an_abandoned_job_is_killed_at_once() -> None:
    assert Job().at(1, Abandoned()).sent == [to(KILL, 0, 1, 2, 3)]


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.RUNNING, Phase.DONE)])
def test_no_phase_lasts_for_ever(phase: Phase) -> None:
    enter: dict[Phase, list[Event]] = {
        Phase.DRAINING: [Ended(WORKER_0, 0), Ended(WORKER_1, 0)],
        Phase.LEAVING: [Ended(WORKER_0, 7)],
        Phase.INTERRUPTED: [Signalled(INT)],
        Phase.TERMINATING: [NotStarted(WORKER_1, 127)],
        Phase.KILLING: [Abandoned()],
    }
    job = Job().at(0, *enter[phase])
    assert job.state.phase is phase
    for _ in range(4):  # each deadline leads to the next phase
        if job.state.deadline is not None:
            job.at(job.state.deadline, Tick())
    assert job.state.phase is Phase.DONE


def test_3_s_are_enough_for_every_end() -> None:
    times = Times()
    assert max(times.drain_s, times.leave_s) + times.term_s + supervise.SWEEP_S <= 3
    assert times.stop_s + supervise.SWEEP_S <= 3


def test_how_a_code_reads() -> None:
    assert how(3) == "exited with code 3"
    assert how(139) == "was ended by SIGSEGV (code 139)"
    assert how(255) == "exited with code 255"
