"""Steps of ``membership`` that refuse: who does not belong, or all when two jobs use one address. Pure."""

from __future__ import annotations

from dataclasses import replace

from byteps.control.messages import Failed
from byteps.scheduler import two_jobs
from byteps.scheduler.events import Dismiss, End, Phase, Registered, Rivalled, Send, State, Step, Ticked
from byteps.scheduler.roster import Seat, workers_of

__all__ = ["comer", "comer_still", "end", "rivalled", "seat_of", "surplus", "was_on_its_way"]

LINGER_S = 5.0  # how long those who are still to come are told that two jobs use this port


def seat_of(now: float, event: Registered) -> Seat:
    """Who comes, not seated yet."""
    started_at = now - event.register.origin.age_s
    return Seat(event.seat, event.instance, event.register, started_at=started_at)


def comer(state: State, seat: Seat, text: str) -> Step:
    """This one alone."""
    return state, (Send(seat.number, Failed(text)), Dismiss(seat.number))


def surplus(now: float, state: State, seat: Seat, taken: str) -> Step:
    """Somebody lives in the place that this process claims: the table is in ``two_jobs``."""
    if state.launch:  # one launch is one job: this is a mistake in its settings
        return comer(replace(state, note=f"refused: {taken}"), seat, taken)
    text = f"{two_jobs.SENTENCE}: {taken}"
    crew = state.crew.values()
    strangers = [s for s in workers_of(state.seats.values()) if s.incarnation not in crew]
    if state.epoch == 0 or strangers or was_on_its_way(state, seat.started_at):
        state, told = _all(now, state, text)
        return state, (*told, *comer(state, seat, text)[1])
    return comer(state, seat, text)


def rivalled(now: float, state: State, event: Rivalled) -> Step:
    """A second scheduler was started: its members are on their way here, or have come already."""
    text = two_jobs.rival(event.rival, state.launch)
    mixed = state.epoch == 0 or was_on_its_way(state, now - event.rival.origin.age_s)
    return _all(now, state, text) if text and mixed else (state, ())


def was_on_its_way(state: State, started_at: float) -> bool:
    """Whether a process that began then could have been meant for the epoch that runs.

    One that was started longer before than members wait for each other, a notebook perhaps, was not.
    """
    return state.formed_at - state.timeout_s <= started_at < state.formed_at


def _all(now: float, state: State, text: str) -> Step:
    tell = [action for n in state.seats for action in (Send(n, Failed(text)), Dismiss(n))]
    state = replace(state, phase=Phase.REFUSING, ending=text, seats={}, settled_at=None)
    return replace(state, deadline=now + LINGER_S), tuple(tell)


def comer_still(now: float, state: State, event: Registered) -> Step:
    """One more of the two jobs."""
    return comer(state, seat_of(now, event), state.ending)


def end(now: float, state: State, event: Ticked) -> Step:
    """Whoever comes now finds nobody."""
    if state.deadline is not None and now < state.deadline:
        return state, ()
    return replace(state, phase=Phase.ENDED), (End(1, state.ending, "JoinError"),)
