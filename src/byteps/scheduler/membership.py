"""Who is in the job, as a pure state machine: ``step(now, state, event) -> (state, actions, reason)``.

Theory. A job lives in epochs. An epoch *forms* while processes register; when the last one has come it
*runs*: everybody gets a View with ranks and addresses. A worker may leave for good or suspend; when none is
left in the epoch, the job either ends (nobody suspended) or the next epoch forms out of those that come back
and the servers, which stay. A member that vanishes from a running epoch ends the job: the survivors are told
who, so that nobody waits for it. While an epoch forms, whoever vanishes is merely missing again. When two
jobs use one address (``two_jobs``), everybody is refused and told why, for a while: some are still to come.
Two members that cannot reach each other (*Unreached*) end it too, but who is to be named? If the accused has
died, it is lost, and its silence will tell. Only when it is heard after the accusation (*Heard*), both reach
the scheduler, and both are named.

    phase     Registered        Left                  Closed       Accused      Ticked           Stopped
    ------------------------------------------------------------------------------------------------------
    FORMING   seat or refuse;   unseat; end if the    as Left      -            deadline: fail   end
              run if complete;  last one has gone                               run if settled
              or refuse all
    RUNNING   refuse, or wait   depart, suspend;      lost: end    lost: end    -                end
              for next epoch    form or end if last
              or for next job;
              or refuse all
    REFUSING  refuse            -                     -            -            deadline: end    end
    ENDED     -                 -                     -            -            -                -

Rivalled (a second scheduler for this address) refuses all in the first two phases, or changes nothing. In
RUNNING, Unreached listens for the accused, and its being Heard then ends the job.
The reason is one line on what the job waits for or does; the service logs it when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from byteps.control import sentences
from byteps.control.blame import Whom
from byteps.control.messages import ComeBack, Failed, Lost, Shutdown, View
from byteps.scheduler import refusing, two_jobs
from byteps.scheduler.events import (
    Accused,
    Action,
    Actions,
    Closed,
    Cut,
    Departure,
    Dismiss,
    End,
    Event,
    Formed,
    Gone,
    Heard,
    Left,
    ListenFor,
    Phase,
    Registered,
    Rivalled,
    Send,
    State,
    Step,
    Stopped,
    Ticked,
    Unreached,
)
from byteps.scheduler.roster import (
    PARTITION_BYTES,
    Expected,
    Seat,
    Standing,
    listed,
    member,
    missing,
    place_of,
    ranks_of,
    refusal,
    servers_of,
    surplus,
    unlike,
    workers_of,
)


def begin(
    now: float,
    num_workers: int,
    num_servers: int,
    timeout_s: float,
    *,
    launch: str = "",
    named: bool = True,
    agreed: Mapping[str, str] | None = None,
) -> State:
    """A job that nobody has joined yet; ``agreed`` are settings that members must have as the scheduler."""
    expected = Expected(num_workers, num_servers, "the scheduler")
    return State(expected, timeout_s, now + timeout_s, launch, named, agreed=agreed or {})


def step(now: float, state: State, event: Event) -> tuple[State, Actions, str]:
    """What an event changes, what to do about it, and the one line that says where the job stands."""
    handler = _TABLE.get((state.phase, type(event)))
    actions: Actions = ()
    if handler is not None:
        state, actions = handler(now, state, event)
    return state, actions, status(state)


def status(state: State) -> str:
    """Where the job stands, in one line."""
    if state.phase in (Phase.REFUSING, Phase.ENDED):
        return state.ending
    if state.phase is Phase.RUNNING:
        active = [s.register.role for s in state.seats.values() if s.standing is Standing.ACTIVE]
        return f"epoch {state.epoch}: {active.count('worker')} workers, {active.count('server')} servers"
    suspended = [s for s in state.seats.values() if s.standing is Standing.SUSPENDED]
    if state.settled_at is not None:
        text = "all are there; the job begins, unless those of a second job come within a second"
    elif state.deadline is None:
        text = f"{len(suspended)} workers have left and may come back, with init() or resume()"
    else:
        text = missing(state.seats.values(), expected_of(state))
        if suspended:
            names = listed(sentences.member("worker", s.rank, s.register.host) for s in suspended)
            text += f"; left, and have not called init() or resume() again: {names}"
    return f"{text} ({state.note})" if state.note else text


def awaited(state: State) -> str:
    """What those wait for who have come and not begun; empty when there are none."""
    if state.phase is Phase.FORMING:
        return "" if state.deadline is None else status(state)
    if state.phase is not Phase.RUNNING or not workers_of(state.seats.values()):
        return ""
    workers = [s for s in state.seats.values() if s.register.role == "worker"]
    active = sorted((s for s in workers if s.standing is Standing.ACTIVE), key=lambda s: s.rank)
    names = listed(str(s) for s in active)
    return f"the next epoch begins when all have left epoch {state.epoch}: still there {names}"


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
    seat = refusing.seat_of(now, event)
    known = state.seats.get(event.seat)
    if known is not None and known.standing is not Standing.SUSPENDED:
        return state, (Send(event.seat, Failed(f"{seat} registered twice")), Dismiss(event.seat))
    expected = expected_of(state)
    if state.epoch > 0 and not workers_of(state.seats.values()) and seat.register.role == "worker":
        expected = Expected(seat.register.num_workers, seat.register.num_servers, str(seat))
    others = [s for s in state.seats.values() if not _is_same_process(s, seat)]
    refused = two_jobs.foreign(seat, others, state.launch, state.named)
    if not refused:
        mismatch = refusal(seat, others, expected) or unlike(seat, state.agreed, "the scheduler")
        refused = two_jobs.perhaps(mismatch, state.launch) if mismatch else ""
    if refused:
        return refusing.comer(replace(state, note=f"refused: {refused}"), seat, refused)
    taken = surplus(seat, two_jobs.claims(others, state.crew.values(), seat), expected)
    if taken:
        return refusing.surplus(now, state, seat, taken)
    # The same process on a new connection, or the same worker out of its suspension, takes its old place.
    seats = dict(state.seats)
    actions: list[Action] = []
    for other in state.seats.values():
        back = other.standing is Standing.SUSPENDED and _is_place(other, seat)
        if other.number != seat.number and (_is_same_process(other, seat) or back):
            if other.standing is Standing.ACTIVE:
                return _lost(state, other, "it connected a second time")
            del seats[other.number]
            actions.append(Dismiss(other.number))
    seats[seat.number] = seat
    state, formed = _form(now, replace(state, seats=seats))
    return state, (*actions, *formed)


def _is_place(one: Seat, other: Seat) -> bool:
    return one.register.role == other.register.role and place_of(one) == place_of(other)


def _is_same_process(one: Seat, other: Seat) -> bool:
    """Whether these are connections of one member; a worker may connect anew after ``shutdown()``."""
    is_worker = one.register.role == "worker" and _is_place(one, other)
    return one.instance == other.instance or (is_worker and one.incarnation == other.incarnation != 0)


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
        return replace(state, settled_at=None), ()
    if not (state.epoch or state.launch or state.named):
        settled_at = now + two_jobs.SETTLE_S if state.settled_at is None else state.settled_at
        if now < settled_at:
            return replace(state, settled_at=settled_at), ()
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
        crew={place_of(seat): seat.incarnation for seat in waiting},
        formed_at=now,
        settled_at=None,
        seats=seats,
        departed={},
        deadline=None,
        note="",
        expected=expected,
        cuts=(),
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
    if state.settled_at is not None:
        return _form(now, state)
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
    seat = refusing.seat_of(now, event)
    workers = [s for s in state.seats.values() if s.register.role == "worker"]
    gathers = any(s.standing is not Standing.ACTIVE for s in workers)
    taken = any(s.standing is Standing.ACTIVE and _is_place(s, seat) for s in workers)
    if gathers and not taken:
        return _register(now, state, event)
    refused = two_jobs.foreign(seat, workers, state.launch, state.named)
    if refused:
        return refusing.comer(state, seat, refused)
    member = state.crew.get(place_of(seat)) if seat.register.role == "worker" else 0
    on_its_way = refusing.was_on_its_way(state, seat.started_at)
    if member != seat.incarnation and not state.launch and on_its_way:
        text = f"{seat} was started before the job was complete, and came when all places were taken"
        return refusing.surplus(now, state, seat, text)
    if seat.register.role == "worker" and not taken and len(workers) < state.size:
        text = f"the job before it has not ended: {len(workers)} of its {state.size} workers are still there"
        return state, (Send(event.seat, ComeBack(text)), Dismiss(event.seat))
    text = (
        f"{seat} came too late: the job is complete ({status(state)}); "
        "stop the process that has its place, or start this one in a job of its own"
    )
    return refusing.comer(state, seat, two_jobs.perhaps(text, state.launch))


def _leave(now: float, state: State, event: Left) -> Step:
    seat = state.seats.get(event.seat)
    if seat is None:
        return state, ()
    if seat.standing is not Standing.ACTIVE:
        return _without(state, seat), (Dismiss(seat.number),)
    if event.failed and event.because is not None:
        return _left_behind(state, seat, event.because)
    if event.failed or seat.register.role == "server":
        return _lost(state, seat, event.reason or "it left")
    actions: list[Action] = []
    actions.append(Departure(seat.number, seat.rank, event.reason))
    gone = Gone(seat, event.reason or "it left")
    state = replace(state, departed={**state.departed, seat.rank: gone})
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
    return _lost(state, seat, event.reason, event.at_s)


def _left_behind(state: State, seat: Seat, because: Lost) -> Step:
    """A member ends because it has lost another one: then that one is the reason, not this one.

    Perhaps it has left in peace with fewer steps than others; perhaps we have not noticed its end yet.
    """
    gone = state.departed.get(because.rank) if because.role == "worker" else None
    if gone is not None:
        uneven = f"{gone.words}, and {seat} still needed it ({because.reason[:500]})"
        return _lost(state, gone.seat, f"{uneven}; the data is uneven: all ranks must take as many steps")
    for other in state.seats.values():
        is_meant = (other.register.role, other.rank) == (because.role, because.rank)
        if is_meant and other.standing is Standing.ACTIVE and other is not seat:
            return _lost(state, other, f"{seat} has lost it: {because.reason[:500]}")
    return _lost(state, seat, because.reason)


def _accuse(now: float, state: State, event: Accused) -> Step:
    accuser = state.seats.get(event.seat)
    seat = _active(state, event.role, event.rank)
    if seat is None:  # it has left in the meantime, and the accuser will hear of it
        return state, ()
    return _lost(state, seat, f"{accuser or 'a member'} cannot reach it: {event.reason}")


def _suspect_a_cut(now: float, state: State, event: Unreached) -> Step:
    accused = _active(state, event.role, event.rank)
    if accused is None:
        return state, ()
    cut = Cut(event.seat, accused.number, event.reason)
    others = tuple(c for c in state.cuts if (c.accuser, c.accused) != (cut.accuser, cut.accused))
    return replace(state, cuts=(*others, cut)), (ListenFor(accused.number),)


def _heard(now: float, state: State, event: Heard) -> Step:
    for cut in state.cuts:
        accuser, accused = state.seats.get(cut.accuser), state.seats.get(cut.accused)
        if accuser is not None and accused is not None and accused.number == event.seat:
            next_step = "look for a firewall or a broken link between their hosts"
            reason = f"{cut.reason}; both reach the scheduler; {next_step}"
            return _lost(state, accused, reason, unreached_by=accuser)
    return state, ()


def _active(state: State, role: str, rank: int) -> Seat | None:
    for seat in state.seats.values():
        if (seat.register.role, seat.rank, seat.standing) == (role, rank, Standing.ACTIVE):
            return seat
    return None


def _lost(state: State, seat: Seat, reason: str, at_s: float = 0.0, unreached_by: Seat | None = None) -> Step:
    """``unreached_by``: it lives, and so does that one, but they cannot reach each other."""
    said = seat.register
    lost = Lost(said.role, seat.rank, said.host, reason, said.pid, at_s)
    text = sentences.was_lost(seat, reason)
    if unreached_by is not None:
        its = unreached_by.register
        by = Whom(its.role, unreached_by.rank, its.host, its.pid)
        lost = msgspec.structs.replace(lost, unreached_by=by)
        text = sentences.cut(unreached_by, seat, reason)
    tell = [action for n in state.seats for action in (Send(n, lost), Dismiss(n))]
    end = End(1, text, "PeerLostError", lost)
    return replace(state, phase=Phase.ENDED, ending=text, seats={}), (*tell, end)


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
    (Phase.FORMING, Rivalled): refusing.rivalled,
    (Phase.FORMING, Left): _unseat,
    (Phase.FORMING, Closed): _unseat,
    (Phase.FORMING, Ticked): _deadline,
    (Phase.FORMING, Stopped): _stop,
    (Phase.RUNNING, Registered): _late,
    (Phase.RUNNING, Rivalled): refusing.rivalled,
    (Phase.RUNNING, Left): _leave,
    (Phase.RUNNING, Closed): _vanish,
    (Phase.RUNNING, Accused): _accuse,
    (Phase.RUNNING, Unreached): _suspect_a_cut,
    (Phase.RUNNING, Heard): _heard,
    (Phase.RUNNING, Stopped): _stop,
    (Phase.REFUSING, Registered): refusing.comer_still,
    (Phase.REFUSING, Ticked): refusing.end,
    (Phase.REFUSING, Stopped): _stop,
}
