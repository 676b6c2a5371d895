"""Who is in the job, as a pure state machine: ``step(now, state, event) -> (state, actions, reason)``.

Theory. A job lives in epochs. An epoch *forms* while processes register; when the last one has come it
*runs*: everybody gets a View with ranks and addresses. A worker may leave for good or suspend; when none is
left in the epoch, the job either ends (nobody suspended) or the next epoch forms out of those that come back
and the servers, which stay. A member that vanishes from a running epoch ends the job: the survivors are told
who, so that nobody waits for it. While an epoch forms, whoever vanishes is merely missing again.

    phase     Registered        Left                  Closed       Accused      Ticked           Stopped
    ------------------------------------------------------------------------------------------------------
    FORMING   seat or refuse;   unseat; end if the    as Left      -            deadline: fail   end
              run if complete   last one has gone
    RUNNING   refuse, or wait   depart, suspend;      lost: end    lost: end    -                end
              for next epoch    form or end if last
              or for next job
    ENDED     -                 -                     -            -            -                -

The reason is one line on what the job waits for or does; the service logs it when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from byteps.control.messages import ComeBack, Failed, Lost, Shutdown, View
from byteps.scheduler.events import (
    Accused,
    Action,
    Actions,
    Closed,
    Departure,
    Dismiss,
    End,
    Event,
    Formed,
    Left,
    Phase,
    Registered,
    Send,
    State,
    Step,
    Stopped,
    Ticked,
)
from byteps.scheduler.roster import (
    PARTITION_BYTES,
    Expected,
    Seat,
    Standing,
    member,
    missing,
    ranks_of,
    refusal,
    servers_of,
    workers_of,
)


def begin(now: float, num_workers: int, num_servers: int, timeout_s: float) -> State:
    """A job that nobody has joined yet."""
    return State(Expected(num_workers, num_servers, "the scheduler"), timeout_s, now + timeout_s)


def step(now: float, state: State, event: Event) -> tuple[State, Actions, str]:
    """What an event changes, what to do about it, and the one line that says where the job stands."""
    handler = _TABLE.get((state.phase, type(event)))
    actions: Actions = ()
    if handler is not None:
        state, actions = handler(now, state, event)
    return state, actions, status(state)


def status(state: State) -> str:
    """Where the job stands, in one line."""
    if state.phase is Phase.ENDED:
        return state.ending
    if state.phase is Phase.RUNNING:
        active = [s.register.role for s in state.seats.values() if s.standing is Standing.ACTIVE]
        return f"epoch {state.epoch}: {active.count('worker')} workers, {active.count('server')} servers"
    suspended = [s for s in state.seats.values() if s.standing is Standing.SUSPENDED]
    if state.deadline is None:
        text = f"{len(suspended)} suspended workers; waiting for resume()"
    else:
        text = missing(state.seats.values(), expected_of(state))
    return f"{text} ({state.note})" if state.note else text


def expected_of(state: State) -> Expected:
    """How many have to come to the epoch that forms or that forms next."""
    if state.epoch == 0:
        return state.expected
    waiting = sorted(workers_of(state.seats.values()), key=lambda s: s.number)
    if not waiting:
        return state.expected
    return Expected(waiting[0].register.num_workers, waiting[0].register.num_servers, str(waiting[0]))


# FORMING


def _register(now: float, state: State, event: Registered) -> Step:
    seat = Seat(event.seat, event.instance, event.register)
    known = state.seats.get(event.seat)
    if known is not None and known.standing is not Standing.SUSPENDED:
        return state, (Send(event.seat, Failed(f"{seat} registered twice")), Dismiss(event.seat))
    expected = expected_of(state)
    if state.epoch > 0 and not workers_of(state.seats.values()) and seat.register.role == "worker":
        expected = Expected(seat.register.num_workers, seat.register.num_servers, str(seat))
    refused = refusal(seat, state.seats.values(), expected)
    if refused:
        noted = replace(state, note=f"refused: {refused}")
        return noted, (Send(event.seat, Failed(refused)), Dismiss(event.seat))
    # The same process on a new connection, or the same worker out of its suspension, takes its old place.
    seats = dict(state.seats)
    actions: list[Action] = []
    for other in state.seats.values():
        back = other.standing is Standing.SUSPENDED and _place(other) == _place(seat)
        if other.number != seat.number and (other.instance == seat.instance or back):
            if other.standing is Standing.ACTIVE:
                return _lost(state, other, "it connected a second time")
            del seats[other.number]
            actions.append(Dismiss(other.number))
    seats[seat.number] = seat
    state, formed = _form(now, replace(state, seats=seats))
    return state, (*actions, *formed)


def _place(seat: Seat) -> tuple[str, int, int]:
    return seat.register.role, seat.register.worker_id, seat.register.local_rank


def _form(now: float, state: State) -> Step:
    """Start the epoch if everybody is there; otherwise keep the clock of those who wait."""
    waiting = workers_of(state.seats.values())
    if state.phase is not Phase.FORMING:
        return state, ()
    if state.epoch > 0 and not waiting:  # all are suspended: for as long as they like
        return replace(state, deadline=None), ()
    if state.deadline is None:
        state = replace(state, deadline=now + state.timeout_s)
    expected = expected_of(state)
    if missing(state.seats.values(), expected):
        return state, ()
    ranks, problem = ranks_of(state.seats.values())
    if problem:
        return _fail(state, "JoinError", f"the job cannot start: {problem}")
    servers = servers_of(state.seats.values())
    seats = dict(state.seats)
    actions: list[Action] = []
    for seat in servers[expected.servers :]:  # the job resumes with fewer servers
        del seats[seat.number]
        actions += [Send(seat.number, Shutdown()), Dismiss(seat.number)]
    ranks.update({seat.number: rank for rank, seat in enumerate(servers[: expected.servers])})
    for number, rank in ranks.items():
        seats[number] = replace(seats[number], standing=Standing.ACTIVE, rank=rank)
    members = [member(seats[number]) for number in ranks]
    members.sort(key=lambda one: (one.role != "worker", one.rank))
    view = View(state.epoch + 1, 0, len(waiting), members)
    state = replace(
        state,
        phase=Phase.RUNNING,
        epoch=view.epoch,
        size=view.size,
        seats=seats,
        deadline=None,
        note="",
        expected=expected,
    )
    views = [Send(number, View(view.epoch, rank, view.size, members)) for number, rank in ranks.items()]
    partition_bytes = int(waiting[0].register.agreed[PARTITION_BYTES])
    return state, (*actions, Formed(view, partition_bytes), *views)


def _unseat(now: float, state: State, event: Left | Closed) -> Step:
    """Somebody goes while the epoch forms: it is missing again, or it was the last one of the job."""
    seat = state.seats.get(event.seat)
    if seat is None:
        return state, ()
    if isinstance(event, Left) and event.suspend:
        seats = {**state.seats, seat.number: replace(seat, standing=Standing.SUSPENDED)}
        return _form(now, replace(state, seats=seats))
    goodbye = (Dismiss(event.seat),) if isinstance(event, Left) else ()
    state = _without(state, seat, f"{seat} was there and went: {event.reason or 'it left'}")
    state, end = _end_if_last(state)
    if not end:
        state, end = _form(now, state)
    return state, (*goodbye, *end)


def _without(state: State, seat: Seat, note: str = "") -> State:
    seats = {number: other for number, other in state.seats.items() if number != seat.number}
    return replace(state, seats=seats, note=note or state.note)


def _end_if_last(state: State) -> Step:
    """The end of the job: epochs have run, and no worker is here, waiting or suspended."""
    if state.epoch == 0 or any(s.register.role == "worker" for s in state.seats.values()):
        return state, ()
    text = "all workers are done"
    goodbyes = [action for n in state.seats for action in (Send(n, Shutdown()), Dismiss(n))]
    return replace(state, phase=Phase.ENDED, ending=text, seats={}), (*goodbyes, End(0, text))


def _deadline(now: float, state: State, event: Ticked) -> Step:
    if state.deadline is None or now < state.deadline:
        return state, ()
    text = f"the job did not start within {state.timeout_s:g} s (BYTEPS_CONNECT_TIMEOUT_S): {status(state)}"
    return _fail(state, "JoinTimeoutError", text)


def _fail(state: State, error: str, text: str) -> Step:
    tell = [action for n in state.seats for action in (Send(n, Failed(text, error)), Dismiss(n))]
    return replace(state, phase=Phase.ENDED, ending=text, seats={}), (*tell, End(1, text, error))


# RUNNING


def _late(now: float, state: State, event: Registered) -> Step:
    """Nobody joins a running epoch; but once somebody has suspended, the next one gathers.

    And once somebody has left for good, the end of the job is near: a worker in its place wants the job that
    comes after, whose scheduler will listen at the same address.
    """
    seat = Seat(event.seat, event.instance, event.register)
    workers = [s for s in state.seats.values() if s.register.role == "worker"]
    gathers = any(s.standing is not Standing.ACTIVE for s in workers)
    taken = any(s.standing is Standing.ACTIVE and _place(s) == _place(seat) for s in workers)
    if gathers and not taken:
        return _register(now, state, event)
    if seat.register.role == "worker" and not taken and len(workers) < state.size:
        text = f"the job before it has not ended: {len(workers)} of its {state.size} workers are still there"
        return state, (Send(event.seat, ComeBack(text)), Dismiss(event.seat))
    text = (
        f"{seat} came too late: the job is complete ({status(state)}); "
        "stop the process that has its place, or start this one in a job of its own"
    )
    return state, (Send(event.seat, Failed(text)), Dismiss(event.seat))


def _leave(now: float, state: State, event: Left) -> Step:
    seat = state.seats.get(event.seat)
    if seat is None:
        return state, ()
    if seat.standing is not Standing.ACTIVE:
        return _without(state, seat), (Dismiss(seat.number),)
    if event.failed or seat.register.role == "server":
        return _lost(state, seat, event.reason or "it left")
    actions: list[Action] = []
    actions.append(Departure(seat.number, seat.rank))
    if event.suspend:
        seats = {**state.seats, seat.number: replace(seat, standing=Standing.SUSPENDED)}
        state = replace(state, seats=seats)
    else:
        state = _without(state, seat)
        actions.append(Dismiss(seat.number))
    if any(s.register.role == "worker" and s.standing is Standing.ACTIVE for s in state.seats.values()):
        return state, tuple(actions)
    state, end = _end_if_last(state)
    if not end:
        seats = {
            n: replace(s, standing=Standing.WAITING) if s.register.role == "server" else s
            for n, s in state.seats.items()
        }
        state, end = _form(now, replace(state, phase=Phase.FORMING, deadline=None, seats=seats))
    return state, (*actions, *end)


def _vanish(now: float, state: State, event: Closed) -> Step:
    seat = state.seats.get(event.seat)
    if seat is None:
        return state, ()
    if seat.standing is not Standing.ACTIVE:
        return _without(state, seat, f"{seat} was there and went: {event.reason}"), ()
    return _lost(state, seat, event.reason)


def _accuse(now: float, state: State, event: Accused) -> Step:
    accuser = state.seats.get(event.seat)
    for seat in state.seats.values():
        if (seat.register.role, seat.rank, seat.standing) == (event.role, event.rank, Standing.ACTIVE):
            return _lost(state, seat, f"{accuser or 'a member'} cannot reach it: {event.reason}")
    return state, ()  # it has left in the meantime, and the accuser will hear of it


def _lost(state: State, seat: Seat, reason: str) -> Step:
    text = f"{seat} was lost: {reason}"
    lost = Lost(seat.register.role, seat.rank, seat.register.host, reason)
    tell = [action for n in state.seats for action in (Send(n, lost), Dismiss(n))]
    return replace(state, phase=Phase.ENDED, ending=text, seats={}), (*tell, End(1, text, "PeerLostError"))


def _stop(now: float, state: State, event: Stopped) -> Step:
    """Whoever is in an epoch loses the scheduler; whoever waits for one cannot start."""
    text = f"the scheduler was stopped: {event.reason}"
    tell: list[Action] = []
    for seat in state.seats.values():
        waits = seat.standing is Standing.WAITING
        lost = Lost("scheduler", 0, event.host, event.reason)
        tell += [Send(seat.number, Failed(text) if waits else lost), Dismiss(seat.number)]
    return replace(state, phase=Phase.ENDED, ending=text, seats={}), (*tell, End(event.code, text))


_TABLE: dict[tuple[Phase, type[Event]], Callable[..., Step]] = {
    (Phase.FORMING, Registered): _register,
    (Phase.FORMING, Left): _unseat,
    (Phase.FORMING, Closed): _unseat,
    (Phase.FORMING, Ticked): _deadline,
    (Phase.FORMING, Stopped): _stop,
    (Phase.RUNNING, Registered): _late,
    (Phase.RUNNING, Left): _leave,
    (Phase.RUNNING, Closed): _vanish,
    (Phase.RUNNING, Accused): _accuse,
    (Phase.RUNNING, Stopped): _stop,
}
