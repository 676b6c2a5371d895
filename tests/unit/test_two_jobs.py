"""Two jobs at one address, as the scheduler sees them: the table of ``two_jobs``, and orders at random."""

from __future__ import annotations

import random
from typing import Any

import pytest
from test_membership import Job, refusal_in, register, told, views_in

from byteps.control.messages import ComeBack, Failed, Origin, Rival, View
from byteps.scheduler import membership
from byteps.scheduler.events import Left, Phase, Registered, Rivalled, Send, Stopped, Ticked
from byteps.scheduler.two_jobs import SENTENCE, SETTLE_S

LINGER_S = 5.0


def by_hand(**changes: Any) -> Job:
    """A job that nobody has named, and no launcher started."""
    job = Job()
    job.state = membership.begin(0.0, 2, 1, 300.0, **{"named": False, **changes})
    return job


def come(job: Job, seat: int, worker_id: int | None = None, **changes: Any) -> list[Any]:
    """A process with its own incarnation, unless ``changes`` says so; without an id it is a server."""
    origin = {"incarnation": 1000 + seat, "program": "train.py", "folder": "/a", "user": "me"}
    for name in ("incarnation", "launch", "program", "folder", "user", "age_s"):
        if name in changes:
            origin[name] = changes.pop(name)
    where = {"host": "a", "pid": seat, "origin": Origin(**origin)}
    role, number = ("server", 0) if worker_id is None else ("worker", worker_id)
    return job.feed(Registered(seat, seat, register(role, number, **{**job.counts, **where, **changes})))


def second_scheduler(job: Job, **origin: Any) -> list[Any]:
    return job.feed(Rivalled(Rival("b", 99, Origin(folder="/b", user="you", **origin))))


def settle(job: Job) -> list[Any]:
    job.now += SETTLE_S
    return job.feed(Ticked())


def run_by_hand(**changes: Any) -> Job:
    job = by_hand(**changes)
    for arguments in ((101,), (1, 0), (2, 1)):
        actions = come(job, *arguments)
    if job.state.phase is Phase.FORMING:
        actions = settle(job)
    assert views_in(actions).keys() == {1, 2, 101}
    return job


def all_refused(job: Job, actions: list[Any], seats: set[int]) -> str:
    failures = told(actions, Failed)
    assert failures.keys() == seats and job.state.phase is Phase.REFUSING
    (text,) = {failure.text for failure in failures.values()}
    assert text.startswith(SENTENCE)
    return str(text)


# Launch ids


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ("l1", "l2", "was started by launch l2, and the scheduler was started by launch l1"),
        ("l1", "", "was started by hand, and the scheduler was started by launch l1"),
        ("", "l2", "was started by launch l2, and the scheduler was started by hand"),
    ],
)
@pytest.mark.parametrize("worker_id", [1, None])
def test_another_launch_is_refused_and_the_job_forms(
    ours: str, theirs: str, words: str, worker_id: int | None
) -> None:
    job = by_hand(launch=ours)
    come(job, 1, 0, launch=ours)
    text = refusal_in(come(job, 7, worker_id, launch=theirs))
    assert text.startswith(f"{SENTENCE}: ") and "pid 7" in text and words in text
    come(job, 101, launch=ours)
    come(job, 2, 1, launch=ours)
    assert job.state.phase is (Phase.RUNNING if ours else Phase.FORMING)
    assert SENTENCE in refusal_in(come(job, 8, worker_id, launch=theirs))  # also when the job is complete


def test_one_launch_is_one_job_whatever_its_members_look_like() -> None:
    job = by_hand(launch="l1")
    come(job, 101, launch="l1")
    come(job, 1, 0, launch="l1", program="chief.py")
    assert refusal_in(come(job, 3, 0, launch="l1")).startswith("worker 0 (host a, pid 3) came twice")
    assert second_scheduler(job) == second_scheduler(job, launch="l2") == []
    assert views_in(come(job, 2, 1, launch="l1", folder="/b"))  # at once: nothing to wait for


# What members look like

LOOKS = [
    ({"program": "other.py"}, "runs other.py, worker 0 (host a, pid 1) runs train.py"),
    ({"program": "other.py", "host": "b"}, "runs other.py"),
    ({"user": "you"}, "is of user you, worker 0 (host a, pid 1) of me on the same host"),
    ({"folder": "/b"}, "works in /b, worker 0 (host a, pid 1) in /a on the same host"),
]


@pytest.mark.parametrize(("looks", "words"), LOOKS)
def test_without_a_name_workers_must_look_alike(looks: dict[str, str], words: str) -> None:
    job = by_hand()
    come(job, 101)
    come(job, 1, 0)
    text = refusal_in(come(job, 2, 1, **looks))
    assert text.startswith(SENTENCE) and words in text and "if both are one job, set BYTEPS_JOB_ID" in text
    come(job, 3, 1)
    assert views_in(settle(job)).keys() == {1, 3, 101}  # the one that was refused is the only one
    assert words in refusal_in(come(job, 4, 1, **looks, age_s=100.0))


@pytest.mark.parametrize(("looks", "_"), LOOKS)
def test_whoever_names_a_job_may_mix_anything(looks: dict[str, str], _: str) -> None:
    job = by_hand(named=True)
    come(job, 101)
    come(job, 1, 0)
    assert views_in(come(job, 2, 1, **looks))


@pytest.mark.parametrize(
    "looks",
    [
        {"folder": "/b", "host": "b"},
        {"user": "you", "host": "b"},
        {"program": "", "folder": "", "user": ""},  # it cannot tell
        {"pid": 1},
    ],
)
def test_what_an_honest_job_may_differ_in(looks: dict[str, Any]) -> None:
    job = by_hand()
    come(job, 101, program="", folder="/elsewhere", user="root")  # a server runs no script
    come(job, 1, 0)
    come(job, 2, 1, **looks)
    assert views_in(settle(job)).keys() == {1, 2, 101}


# Too many of them


def test_a_place_that_is_taken_refuses_everybody_while_the_job_forms() -> None:
    job = by_hand()
    come(job, 1, 0)
    text = all_refused(job, come(job, 2, 0), {1, 2})
    assert "worker 0 (host a, pid 2) came twice: worker 0 (host a, pid 1) is already there" in text
    assert "its own DMLC_WORKER_ID" in text  # it may be a mistake in one job as well
    assert refusal_in(come(job, 3, 1)) == text  # and those that come later hear it too
    assert second_scheduler(job) == []
    job.now += LINGER_S
    (end,) = job.feed(Ticked())
    assert (end.code, end.text, end.error) == (1, text, "JoinError")


def test_a_server_too_many_refuses_everybody_while_the_job_forms() -> None:
    job = by_hand(named=True)
    come(job, 1)
    text = all_refused(job, come(job, 2), {1, 2})
    assert "server (host a, pid 2) is one too many" in text and "DMLC_NUM_SERVER" in text


def test_a_second_scheduler_refuses_everybody_while_the_job_forms() -> None:
    job = by_hand()
    come(job, 1, 0)
    text = all_refused(job, second_scheduler(job), {1})
    assert "a second scheduler was started for this address (host b, pid 99, folder /b, user you)" in text


def test_a_complete_job_waits_for_the_second_one_to_show() -> None:
    job = by_hand()
    for arguments in ((101,), (1, 0), (2, 1)):
        assert not views_in(come(job, *arguments))
    assert "all are there" in job.reason
    assert all_refused(job, second_scheduler(job), {1, 2, 101})
    assert job.state.settled_at is None  # or the service would look at a time that is past for ever


def test_who_leaves_while_the_job_settles_is_missing_again() -> None:
    job = by_hand()
    for arguments in ((101,), (1, 0), (2, 1)):
        come(job, *arguments)
    job.feed(Left(2))
    assert settle(job) == [] and "missing worker 1" in job.reason
    come(job, 3, 1)
    assert views_in(settle(job)).keys() == {1, 3, 101}


def test_one_that_was_there_before_the_job_was_complete_ends_it() -> None:
    for newcomer in (0, 1, None):
        job = run_by_hand()
        text = all_refused(job, come(job, 9, newcomer, age_s=SETTLE_S + 5), {1, 2, 101, 9})
        assert "was started before the job was complete" in text
    job = run_by_hand()
    all_refused(job, second_scheduler(job, age_s=SETTLE_S + 5), {1, 2, 101})


def test_one_that_was_started_later_is_refused_alone() -> None:
    job = run_by_hand()
    job.now += 100.0
    for newcomer in (0, 1, None):
        assert SENTENCE in refusal_in(come(job, 9, newcomer, age_s=99.0))
    assert second_scheduler(job, age_s=99.0) == []
    assert SENTENCE in refusal_in(come(job, 9, 0, age_s=1e5))  # of yesterday: it was not on its way here
    assert job.state.phase is Phase.RUNNING


def test_a_mixture_ends_though_the_one_in_its_place_has_left() -> None:
    job = run_by_hand()
    job.now += 10.0
    job.feed(Left(1))
    send, _ = come(job, 8, 0, age_s=0.5)  # started after the job was complete: it wants the next one
    assert isinstance(send, Send) and isinstance(send.message, ComeBack)
    all_refused(job, come(job, 9, 0, age_s=SETTLE_S + 15), {2, 101, 9})


# Later epochs: the members know each other


def suspended() -> Job:
    job = run_by_hand()
    job.now += 100.0
    job.feed(Left(1, suspend=True))
    job.feed(Left(2, suspend=True))
    assert job.state.phase is Phase.FORMING
    return job


def test_nobody_takes_the_place_of_a_suspended_process() -> None:
    job = suspended()
    assert "came twice" in refusal_in(come(job, 9, 0, age_s=1.0))
    assert second_scheduler(job, age_s=1.0) == []
    come(job, 11, 0, incarnation=1001, age_s=200.0)
    assert views_in(come(job, 12, 1, incarnation=1002, age_s=200.0)).keys() == {11, 12, 101}


def test_suspended_processes_may_swap_their_places() -> None:
    job = suspended()
    come(job, 11, 1, incarnation=1001, age_s=200.0)
    views = views_in(come(job, 12, 0, incarnation=1002, age_s=200.0))
    assert {seat: view.rank for seat, view in views.items() if seat != 101} == {11: 1, 12: 0}


def test_a_stranger_that_took_a_free_place_goes_with_the_next_one() -> None:
    job = suspended()
    job.feed(Left(2))  # its place is free
    come(job, 9, 1, age_s=1.0)  # nothing tells that it is a stranger, until
    all_refused(job, come(job, 10, 0, age_s=1.0), {1, 9, 101, 10})


def test_a_scheduler_that_refuses_can_be_stopped() -> None:
    job = by_hand()
    come(job, 1, 0)
    come(job, 2, 0)
    (end,) = job.feed(Stopped(143, "a", "it got SIGTERM"))
    assert end.code == 143


# All orders


@pytest.mark.parametrize("kind", ["alike", "other folder", "launched"])
def test_no_mixture_stays_whatever_the_order(kind: str, seed: int) -> None:
    """Whoever is started within the second that a complete job waits is noticed, however late it comes."""
    rng = random.Random(seed)
    mixtures = 0
    for _ in range(400):
        job, formed = _race(rng, kind)
        whose = [{member.pid // 100 for member in view.workers()} for view in formed]
        mixtures += any(len(jobs) > 1 for jobs in whose)
        if kind == "alike":
            assert job.state.phase is Phase.REFUSING  # one of them is always too many
        else:
            assert all(len(jobs) == 1 for jobs in whose)  # they are told apart before anything runs
    assert (mixtures > 0) == (kind == "alike")  # the test is worth its name


def _race(rng: random.Random, kind: str) -> tuple[Job, list[View]]:
    """Two jobs of two workers and a server: 8 processes, of which one scheduler has the port."""
    comers = []
    for owner in (1, 2):
        looks = {"folder": f"/{owner}"} if kind == "other folder" else {}
        launch = f"l{owner}" if kind == "launched" else ""
        for role, number in (("scheduler", 0), ("server", 0), ("worker", 0), ("worker", 1)):
            began = rng.random() * SETTLE_S
            comers.append(
                (began + rng.random() * 4.0, began, owner, role, number, {**looks, "launch": launch})
            )
    comers.sort(key=lambda comer: comer[0])
    first, second = (comer for comer in comers if comer[3] == "scheduler")
    job = by_hand(launch=first[5]["launch"])
    formed = []
    for seat, (at, began, owner, role, number, said) in enumerate(comers, 1):
        at = max(at, first[0])
        while job.now + 0.1 < at:
            job.now += 0.1
            formed += [*views_in(job.feed(Ticked())).values()][:1]
        job.now = at
        if role == "scheduler":
            if owner == second[2]:
                second_scheduler(job, age_s=at - began, launch=said["launch"])
            continue
        age_s = at - began
        actions = come(job, seat, None if role == "server" else number, pid=100 * owner, age_s=age_s, **said)
        formed += [*views_in(actions).values()][:1]
    return job, formed
