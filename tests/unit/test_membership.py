"""The membership state machine, driven event by event without sockets or clocks."""

from __future__ import annotations

import random
from typing import Any

import pytest

from byteps.control import loss
from byteps.control.blame import Verdict
from byteps.control.messages import ComeBack, Failed, Lost, Register, Shutdown, View
from byteps.scheduler import membership, statement
from byteps.scheduler.events import (
    Accused,
    Action,
    Closed,
    Departure,
    Dismiss,
    End,
    Event,
    Formed,
    Heard,
    Left,
    ListenFor,
    Phase,
    Registered,
    Send,
    Stopped,
    Ticked,
    Unreached,
)

TIMEOUT_S = 300.0


def register(role: str, worker_id: int = 0, **changes: Any) -> Register:
    values: dict[str, Any] = {
        "role": role,
        "worker_id": worker_id,
        "local_rank": 0,
        "local_size": 1,
        "global_rank": None,
        "num_workers": 2,
        "num_servers": 1,
        "host": f"host-{role}-{worker_id}",
        "address": "10.0.0.1",
        "port": 9000 if role == "server" else 0,
        "shards": 2 if role == "server" else 0,
        "pid": 100 + worker_id,
        "agreed": {"BYTEPS_ENABLE_ASYNC": "0"},
    }
    if role == "worker":
        values["agreed"] = {"BYTEPS_ENABLE_ASYNC": "0", "BYTEPS_PARTITION_BYTES": "4096000"}
    return Register(**{**values, **changes})


class Job:
    """A state, and short words for the events that change it. Seats are the numbers of connections."""

    def __init__(self, workers: int = 2, servers: int = 1) -> None:
        self.counts = {"num_workers": workers, "num_servers": servers}
        self.state = membership.begin(0.0, workers, servers, TIMEOUT_S)
        self.now = 0.0
        self.reason = membership.status(self.state)

    def feed(self, event: Event) -> list[Action]:
        self.state, actions, self.reason = membership.step(self.now, self.state, event)
        return list(actions)

    def worker(self, seat: int, worker_id: int, **changes: Any) -> list[Action]:
        changes = {**self.counts, **changes}
        return self.feed(Registered(seat, 1000 + seat, register("worker", worker_id, **changes)))

    def server(self, seat: int, **changes: Any) -> list[Action]:
        changes = {**self.counts, **changes}
        return self.feed(Registered(seat, 1000 + seat, register("server", **changes)))

    def run(self) -> Job:
        """Everybody comes: workers on seats 1.., servers on seats 101.."""
        for number in range(self.counts["num_servers"]):
            self.server(101 + number)
        for number in range(self.counts["num_workers"]):
            self.worker(1 + number, number)
        assert self.state.phase is Phase.RUNNING, self.reason
        return self


def refusal_in(actions: list[Action]) -> str:
    assert len(actions) == 2 and isinstance(actions[1], Dismiss), actions
    sent = actions[0]
    assert isinstance(sent, Send) and isinstance(sent.message, Failed), actions
    return sent.message.text


def views_in(actions: list[Action]) -> dict[int, View]:
    return {a.seat: a.message for a in actions if isinstance(a, Send) and isinstance(a.message, View)}


def told(actions: list[Action], kind: type) -> dict[int, Any]:
    return {a.seat: a.message for a in actions if isinstance(a, Send) and isinstance(a.message, kind)}


def end_of(actions: list[Action]) -> End:
    ends = [a for a in actions if isinstance(a, End)]
    assert len(ends) == 1, actions
    return ends[0]


# Who is missing


def test_missing_line_names_workers_and_servers() -> None:
    job = Job(4, 2)
    assert job.reason == "0 of 4 workers, 0 of 2 servers; missing worker 0, 1, 2, 3; server 0, 1"
    job.worker(1, 0)
    job.server(2)
    job.worker(3, 2)
    assert job.reason == "2 of 4 workers, 1 of 2 servers; missing worker 1, 3; server 1"
    job.server(4)
    assert job.reason == "2 of 4 workers, 2 of 2 servers; missing worker 1, 3"
    job.worker(5, 1)
    job.worker(6, 3)
    assert job.reason == "epoch 1: 4 workers, 2 servers"


def test_missing_line_names_local_ranks() -> None:
    job = Job(2, 1)
    job.worker(1, 1, local_size=3, local_rank=1)
    assert job.reason == "0 of 2 workers, 0 of 1 servers; missing worker 0, 1 (local rank 0, 2); server 0"


def test_missing_line_stays_short_in_a_large_job() -> None:
    job = Job(1000, 1)
    assert job.reason.endswith("18, 19 and 980 more; server 0")


# Ranks


def test_every_order_of_arrival_gives_the_same_ranks(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [2, 1, 3]  # machines differ
    for _ in range(20):
        job = Job(3, 2)
        comers: list[tuple[Any, ...]] = [("server", 0, 0), ("server", 0, 0)]
        comers += [("worker", m, r) for m, size in enumerate(sizes) for r in range(size)]
        rng.shuffle(comers)
        actions: list[Action] = []
        for seat, (role, machine, local) in enumerate(comers, 1):
            assert job.state.phase is Phase.FORMING
            if role == "server":
                actions = job.server(seat)
            else:
                actions = job.worker(seat, machine, local_rank=local, local_size=sizes[machine])
        views = views_in(actions)
        assert len(views) == 8 and job.state.phase is Phase.RUNNING
        for seat, (role, machine, local) in enumerate(comers, 1):
            view = views[seat]
            assert (view.epoch, view.size) == (1, 6)
            if role == "worker":
                assert view.rank == sum(sizes[:machine]) + local
        workers = views[1].workers()
        assert [(m.rank, m.worker_id, m.local_rank) for m in workers] == [
            (0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 2, 0), (4, 2, 1), (5, 2, 2),
        ]  # fmt: skip
        assert [m.rank for m in views[1].servers()] == [0, 1]


def test_forced_ranks_are_used() -> None:
    job = Job()
    job.server(1)
    job.worker(2, 0, global_rank=1)
    views = views_in(job.worker(3, 1, global_rank=0))
    assert (views[2].rank, views[3].rank) == (1, 0)


def test_forced_rank_outside_of_the_job_fails_it_by_name() -> None:
    job = Job()
    job.server(1)
    job.worker(2, 0, global_rank=0)
    actions = job.worker(3, 1, global_rank=7)
    end = end_of(actions)
    assert end.code == 1 and "worker 1 (host host-worker-1, pid 101) has BYTEPS_GLOBAL_RANK=7" in end.text
    assert set(told(actions, Failed)) == {1, 2, 3}


def test_formed_comes_before_the_views_and_has_the_cut() -> None:
    job = Job()
    job.server(1)
    job.worker(2, 0)
    actions = job.worker(3, 1)
    assert isinstance(actions[0], Formed) and actions[0].partition_bytes == 4096000


# Refusals: each one names what to change, and the job still forms without the one refused

WORKER_0 = "worker 0 (host host-worker-0, pid 100)"
WORKER_1 = "worker 1 (host host-worker-1, pid 101)"
REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("worker", {"num_workers": 3}, [WORKER_1, "DMLC_NUM_WORKER=3, the scheduler has 2"]),
    ("worker", {"num_servers": 2}, [WORKER_1, "DMLC_NUM_SERVER=2, the scheduler has 1"]),
    ("worker", {"worker_id": 2}, ["DMLC_WORKER_ID=2", "ids go from 0 to 1"]),
    ("worker", {"local_rank": 1}, ["BYTEPS_LOCAL_RANK=1", "BYTEPS_LOCAL_SIZE=1"]),
    ("worker", {"worker_id": 0, "local_rank": 1, "local_size": 2}, ["BYTEPS_LOCAL_SIZE=2", WORKER_0]),
    ("worker", {"global_rank": 1}, [f"{WORKER_1} sets BYTEPS_GLOBAL_RANK", f"{WORKER_0} does not"]),
    ("worker", {"agreed": {}}, ["did not say its BYTEPS_PARTITION_BYTES"]),
    (
        "worker",
        {"agreed": {"BYTEPS_PARTITION_BYTES": "1024", "BYTEPS_ENABLE_ASYNC": "0"}},
        [f"{WORKER_1} has BYTEPS_PARTITION_BYTES=1024, {WORKER_0} has BYTEPS_PARTITION_BYTES=4096000"],
    ),
    ("server", {"agreed": {"BYTEPS_ENABLE_ASYNC": "1"}}, ["BYTEPS_ENABLE_ASYNC=1", WORKER_0]),
    ("server", {"shards": 0}, ["no shards"]),
]


@pytest.mark.parametrize(("role", "changes", "words"), REFUSED)
def test_refusal_names_both_sides(role: str, changes: dict[str, Any], words: list[str]) -> None:
    job = Job()
    job.worker(1, 0)
    changes = {"worker_id": 1 if role == "worker" else 0, **job.counts, **changes}
    text = refusal_in(job.feed(Registered(2, 1002, register(role, **changes))))
    for word in words:
        assert word in text
    assert job.state.phase is Phase.FORMING and set(job.state.seats) == {1}
    assert f"(refused: {text})" in job.reason  # it explains why somebody is missing
    job.server(3)
    assert views_in(job.worker(4, 1))


def test_what_the_scheduler_must_have_alike_is_compared_with_it() -> None:
    agreed = {"PS_HEARTBEAT_TIMEOUT": "10", "PS_HEARTBEAT_INTERVAL": "1"}
    state = membership.begin(0.0, 1, 0, TIMEOUT_S, agreed=agreed)
    said = {"BYTEPS_PARTITION_BYTES": "4096", "PS_HEARTBEAT_TIMEOUT": "60", "PS_HEARTBEAT_INTERVAL": "1"}
    lone = register("worker", num_workers=1, num_servers=0, agreed=said)
    state, actions, _ = membership.step(0.0, state, Registered(1, 1001, lone))
    text = refusal_in(list(actions))
    assert f"{WORKER_0} has PS_HEARTBEAT_TIMEOUT=60, the scheduler has PS_HEARTBEAT_TIMEOUT=10" in text


def test_late_comer_is_refused_and_the_job_goes_on() -> None:
    job = Job().run()
    assert "came too late" in refusal_in(job.worker(9, 1))
    assert job.state.phase is Phase.RUNNING


def test_late_comer_to_a_job_that_ends_shall_come_back() -> None:
    job = Job().run()
    job.feed(Left(1))
    send, dismiss = job.worker(9, 0)
    assert isinstance(send, Send) and isinstance(send.message, ComeBack) and dismiss == Dismiss(9)
    assert "1 of its 2 workers are still there" in send.message.text
    assert "came too late" in refusal_in(job.worker(10, 1))  # its place is taken
    assert "came too late" in refusal_in(job.server(11))
    end_of(job.feed(Left(2)))


def test_same_process_on_a_new_connection_takes_its_place() -> None:
    job = Job()
    job.worker(1, 0)
    said = register("worker", 0, **job.counts)
    assert job.feed(Registered(2, 1001, said)) == [Dismiss(1)]
    assert set(job.state.seats) == {2}


# Going while the job forms


@pytest.mark.parametrize("event", [Closed(1, "its connection closed"), Left(1), Left(1, failed=True)])
def test_whoever_goes_while_forming_is_missing_again(event: Event) -> None:
    job = Job()
    job.worker(1, 0)
    job.feed(event)
    assert job.reason.startswith("0 of 2 workers, 0 of 1 servers; missing worker 0, 1; server 0")
    assert f"{WORKER_0} was there and went" in job.reason
    job.worker(2, 0)
    job.server(3)
    assert views_in(job.worker(4, 1))


def test_deadline_fails_everybody_and_names_who_is_missing() -> None:
    job = Job()
    job.worker(1, 0)
    job.now = TIMEOUT_S - 1
    assert job.feed(Ticked()) == []
    job.now = TIMEOUT_S
    actions = job.feed(Ticked())
    text = "1 of 2 workers, 0 of 1 servers; missing worker 1; server 0"
    end = end_of(actions)
    assert (end.code, end.error) == (1, "JoinTimeoutError") and text in end.text
    assert "BYTEPS_CONNECT_TIMEOUT_S" in end.text
    assert told(actions, Failed)[1].error == "JoinTimeoutError"


# Without servers


def test_a_job_on_one_machine_needs_no_servers() -> None:
    job = Job(1, 0)
    job.worker(1, 0, local_rank=1, local_size=2)
    assert job.reason == "1 of 2 workers; missing worker 0"
    views = views_in(job.worker(3, 0, local_rank=0, local_size=2))
    assert {seat: view.rank for seat, view in views.items()} == {3: 0, 1: 1}
    assert views[1].servers() == [] and views[1].size == 2
    assert job.feed(Left(3)) == [Departure(3, 0), Dismiss(3)]
    actions = job.feed(Left(1))
    assert actions[0] == Departure(1, 1) and end_of(actions).code == 0


# The end of a job


def test_job_ends_when_all_workers_left() -> None:
    job = Job().run()
    assert job.feed(Left(1)) == [Departure(1, 0), Dismiss(1)]
    actions = job.feed(Left(2))
    assert actions[:2] == [Departure(2, 1), Dismiss(2)]
    assert told(actions, Shutdown).keys() == {101} and end_of(actions).code == 0
    assert job.feed(Closed(101, "its connection closed")) == []
    assert job.feed(Closed(2, "its connection closed")) == []


@pytest.mark.parametrize(
    ("event", "role", "rank"),
    [
        (Closed(1, "why"), "worker", 0),
        (Closed(101, "why"), "server", 0),
        (Left(2, failed=True, reason="why"), "worker", 1),
        (Left(101, reason="why"), "server", 0),
        (Accused(101, "worker", 1, "why"), "worker", 1),
        (Accused(1, "server", 0, "why"), "server", 0),
    ],
)
def test_loss_of_a_member_is_told_to_all(event: Event, role: str, rank: int) -> None:
    job = Job().run()
    actions = job.feed(event)
    messages = told(actions, Lost)
    assert messages.keys() == {1, 2, 101}  # the one that is lost may still listen, too
    for lost in messages.values():
        assert (lost.role, lost.rank) == (role, rank) and "why" in lost.reason
    end = end_of(actions)
    assert (end.code, end.error) == (1, "PeerLostError") and f"{role} {rank} (host" in end.text
    assert {a.seat for a in actions if isinstance(a, Dismiss)} == {1, 2, 101}
    assert job.feed(Closed(2, "later")) == []


def lost_in(actions: list[Action]) -> Lost:
    """What everybody is told, and the launcher too."""
    messages = list(told(actions, Lost).values())
    assert len(set(messages)) == 1 and end_of(actions).lost == messages[0]
    return messages[0]


def test_a_worker_that_needs_one_that_left_is_not_the_reason() -> None:
    """Worker 0 has fewer steps than worker 1, which fails because of it."""
    job = Job().run()
    job.feed(Left(1, reason="it left after 5 operations"))
    because = Lost("worker", 0, "host-worker-0", "x: worker 0 has left the job")
    lost = lost_in(job.feed(Left(2, failed=True, reason="PeerLostError: ...", because=because)))
    assert (lost.role, lost.rank, lost.host, lost.pid) == ("worker", 0, "host-worker-0", 100)
    assert (
        "it left after 5 operations, and worker 1 (host host-worker-1, pid 101) still needed it"
        in lost.reason
    )
    assert "x: worker 0 has left the job" in lost.reason and "uneven" in lost.reason


def test_a_worker_that_has_lost_another_knows_it_before_the_scheduler() -> None:
    job = Job().run()
    lost = lost_in(job.feed(Left(2, failed=True, because=Lost("server", 0, "h", "its connection closed"))))
    assert (lost.role, lost.rank, lost.pid) == ("server", 0, 100)
    assert lost.reason == "worker 1 (host host-worker-1, pid 101) has lost it: its connection closed"


@pytest.mark.parametrize("role", ["worker", "scheduler", "server"])
def test_a_loss_that_nobody_can_have_had_is_ones_own(role: str) -> None:
    job = Job().run()
    lost = lost_in(job.feed(Left(2, failed=True, because=Lost(role, 1, "h", "why"))))
    assert (lost.role, lost.rank, lost.reason) == ("worker", 1, "why")


def test_who_left_an_earlier_epoch_is_forgotten() -> None:
    job = Job().run()
    job.feed(Left(1, suspend=True))
    job.feed(Left(2, reason="it left after 5 operations"))
    job.worker(11, 0, num_workers=2)
    job.worker(12, 1, num_workers=2)
    assert job.state.phase is Phase.RUNNING and job.state.departed == {}


def test_a_silent_member_is_told_when_it_was_given_up() -> None:
    job = Job().run()
    actions = job.feed(Closed(2, "no heartbeat", at_s=123.0))
    assert told(actions, Lost)[2].at_s == 123.0  # it may only be stopped, and read this when it wakes up


def test_accusation_of_one_that_left_is_no_news() -> None:
    job = Job().run()
    job.feed(Left(2))
    assert job.feed(Accused(101, "worker", 1, "its connection closed")) == []


def test_two_that_cannot_reach_each_other_are_named_when_both_reach_the_scheduler() -> None:
    job = Job().run()
    assert job.feed(Unreached(1, "server", 0, "nothing came through for 12.6 s")) == [ListenFor(101)]
    assert job.state.phase is Phase.RUNNING
    assert job.feed(Heard(2)) == []  # of another one
    actions = job.feed(Heard(101))
    messages = told(actions, Lost)
    assert messages.keys() == {1, 2, 101}
    expected = (
        f"{WORKER_0} and server 0 (host host-server-0, pid 100) cannot reach each other: nothing came "
        "through for 12.6 s; both reach the scheduler; look for a firewall or a broken link between their "
        "hosts"
    )
    errors = [loss.told(messages[seat], *who) for seat, who in ((1, ("worker", 0)), (101, ("server", 0)))]
    assert {str(error) for error in errors} == {f"{expected}; this job cannot go on, start it again"}
    # To each end, the other one is what was lost.
    assert [(error.role, error.rank) for error in errors] == [("server", 0), ("worker", 0)]
    assert [error.reason for error in errors] == [expected, expected]
    end = end_of(actions)
    assert (end.code, end.error, end.text) == (1, "PeerLostError", expected)
    assert statement.of(end) == Verdict(statement.SELF, None, expected)  # neither of the two is to blame


def test_one_that_nobody_hears_any_more_is_lost_and_not_cut_off() -> None:
    job = Job().run()
    job.feed(Unreached(1, "server", 0, "nothing came through"))
    lost = told(job.feed(Closed(101, "no heartbeat came for 11.0 s")), Lost)[1]
    assert lost.unreached_by is None and lost.reason == "no heartbeat came for 11.0 s"


@pytest.mark.parametrize("gone", [1, 2])
def test_a_cut_of_one_that_left_is_no_news(gone: int) -> None:
    job = Job(3, 1).run()
    job.feed(Unreached(1, "worker", 1, "nothing came through"))
    job.feed(Left(gone))
    assert job.feed(Heard(2)) == []
    assert job.feed(Unreached(1, "worker", 1, "again")) == ([] if gone == 2 else [ListenFor(2)])


@pytest.mark.parametrize("running", [False, True])
def test_stopped_scheduler_tells_everybody(running: bool) -> None:
    job = Job()
    if running:
        job.run()
    else:
        job.worker(1, 0)
    actions = job.feed(Stopped(143, "a", "it got SIGTERM"))
    assert end_of(actions).code == 143
    assert told(actions, Lost if running else Failed).keys() == ({1, 2, 101} if running else {1})


# Suspension


def suspended() -> Job:
    job = Job().run()
    assert job.feed(Left(1, suspend=True)) == [Departure(1, 0)]
    assert job.state.phase is Phase.RUNNING
    assert job.feed(Left(2, suspend=True)) == [Departure(2, 1)]
    assert job.state.phase is Phase.FORMING
    assert job.reason == "2 workers have left and may come back, with init() or resume()"
    return job


def test_suspended_workers_form_the_next_epoch() -> None:
    job = suspended()
    job.now = 10 * TIMEOUT_S
    assert job.feed(Ticked()) == []  # a suspension may last
    job.worker(11, 0)
    left = "left, and have not called init() or resume() again: worker 1 (host host-worker-1)"
    assert job.reason == f"1 of 2 workers, 1 of 1 servers; missing worker 1; {left}"
    views = views_in(job.worker(12, 1))
    assert {view.epoch for view in views.values()} == {2} and views.keys() == {11, 12, 101}
    assert views[101].rank == 0


def test_resume_has_a_deadline() -> None:
    job = suspended()
    job.now = 1000.0
    job.worker(11, 0)
    job.now += TIMEOUT_S
    end = end_of(job.feed(Ticked()))
    assert end.error == "JoinTimeoutError" and "missing worker 1" in end.text


def test_resume_with_fewer_workers_and_servers() -> None:
    job = Job(2, 2).run()
    job.feed(Left(1))
    job.feed(Left(2, suspend=True))
    actions = job.worker(12, 0, global_rank=0, num_workers=1, num_servers=1)
    views = views_in(actions)
    assert views.keys() == {12, 101} and views[12].size == 1
    assert told(actions, Shutdown).keys() == {102}


def test_resume_with_more_of_both_waits_for_the_new_ones() -> None:
    job = suspended()
    job.counts = {"num_workers": 3, "num_servers": 2}
    job.worker(11, 0)
    job.worker(12, 1)
    assert job.reason == "2 of 3 workers, 1 of 2 servers; missing worker 2; server 1"
    job.server(13)
    views = views_in(job.worker(14, 2))
    assert views[14].size == 3 and views[13].rank == 1


def test_resume_with_other_numbers_is_refused_by_name() -> None:
    job = suspended()
    job.worker(11, 0, num_workers=3)
    text = refusal_in(job.worker(12, 1))
    assert "DMLC_NUM_WORKER=2" in text and WORKER_0 in text and "has 3" in text


def test_worker_that_resumes_early_waits_for_those_that_still_run() -> None:
    job = Job().run()
    job.feed(Left(1, suspend=True))
    assert job.worker(11, 0) == [Dismiss(1)]  # its old connection is not needed any more
    assert job.state.phase is Phase.RUNNING
    job.feed(Left(2, suspend=True))
    assert views_in(job.worker(12, 1)).keys() == {11, 12, 101}


def test_nobody_takes_the_place_of_a_worker_that_still_runs() -> None:
    job = Job().run()
    job.feed(Left(1, suspend=True))
    assert "came too late" in refusal_in(job.worker(9, 1, host="b"))


@pytest.mark.parametrize("event", [Closed, Left])
def test_suspended_workers_that_exit_end_the_job(event: type[Closed] | type[Left]) -> None:
    job = suspended()
    first = job.feed(Closed(1, "exit") if event is Closed else Left(1))
    assert not [a for a in first if isinstance(a, End)]
    actions = job.feed(Closed(2, "exit") if event is Closed else Left(2))
    assert end_of(actions).code == 0 and told(actions, Shutdown).keys() == {101}


def test_old_connection_of_a_resumed_worker_may_close_later() -> None:
    job = suspended()
    job.worker(11, 5, global_rank=0)
    job.worker(12, 6, global_rank=1)
    assert job.state.phase is Phase.RUNNING
    assert job.feed(Closed(1, "closed")) == [] and job.feed(Closed(2, "closed")) == []
    job.feed(Left(11))
    assert end_of(job.feed(Left(12))).code == 0


def test_server_lost_during_a_suspension_can_be_replaced() -> None:
    job = suspended()
    job.feed(Closed(101, "killed"))
    job.worker(11, 0)
    job.worker(12, 1)
    assert "missing server 0 (server 0 (host host-server-0, pid 100) was there and went" in job.reason
    assert views_in(job.server(13)).keys() == {11, 12, 13}


def test_random_events_never_break_the_machine(seed: int) -> None:
    """Whatever comes: no exception, seats only of those that are there, and one End at most."""
    rng = random.Random(seed)
    for _ in range(200):
        job = Job(2, 1)
        ends = 0
        for _ in range(40):
            seat = rng.randrange(1, 9)
            event = rng.choice(
                [
                    Registered(seat, 1000 + seat, register("worker", rng.randrange(3))),
                    Registered(seat, 1000 + seat, register("server")),
                    Left(seat, suspend=rng.random() < 0.5, failed=rng.random() < 0.1),
                    Left(seat, failed=True, because=Lost("worker", rng.randrange(3), "h", "x"))
                    if rng.random() < 0.1
                    else Ticked(),
                    Closed(seat, "x") if rng.random() < 0.3 else Ticked(),
                    Accused(seat, "worker", rng.randrange(2), "x") if rng.random() < 0.1 else Ticked(),
                    Unreached(seat, "server", 0, "x") if rng.random() < 0.1 else Ticked(),
                    Heard(seat),
                ]
            )
            job.now += rng.random()
            ended = job.state.phase is Phase.ENDED
            actions = job.feed(event)
            assert not (ended and actions)
            ends += sum(isinstance(a, End) for a in actions)
            assert job.reason
            if job.state.phase is Phase.RUNNING:
                roles = [s.register.role for s in job.state.seats.values() if s.standing.name == "ACTIVE"]
                assert "worker" in roles and roles.count("server") == 1
        assert ends == (job.state.phase is Phase.ENDED)
