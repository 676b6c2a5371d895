"""Who is the reason that a job failed: facts in, a judgement out, no processes. Real ones: tests/chaos."""

from __future__ import annotations

import random

import pytest

from byteps.control.blame import Failed, Joined, Noticed, Verdict, Whom
from byteps.launcher.culprit import judge
from byteps.launcher.facts import Ended, Fact, Halted, NotStarted, Told

# A job of two workers and a server: the launcher's server 0 came second, and is server 1 of the job.
NAMES = ("scheduler", "server 0", "worker 0", "worker 1", "server 1")
SCHEDULER, SERVER, WORKER_0, WORKER_1, SERVER_1 = range(5)
WORKERS = {WORKER_0, WORKER_1}
WHO = {
    SCHEDULER: Whom("scheduler", 0, "a", 10),
    SERVER: Whom("server", 1, "a", 11),
    WORKER_0: Whom("worker", 0, "a", 12),
    WORKER_1: Whom("worker", 1, "b", 13),
    SERVER_1: Whom("server", 0, "a", 14),
}
FORMED = tuple(Told(place, Joined(who)) for place, who in WHO.items())


def failed(place: int, text: str = "ValueError: nan") -> Told:
    return Told(place, Failed(WHO[place], text))


def noticed(place: int, about: int | Whom | None, text: str = "its connection closed") -> Told:
    return Told(place, Noticed(WHO[place], WHO[about] if isinstance(about, int) else about, text))


def verdict(about: int | Whom | None, text: str = "its connection closed", code: int = 0) -> Told:
    return Told(
        SCHEDULER, Verdict(WHO[SCHEDULER], WHO[about] if isinstance(about, int) else about, text, code)
    )


def said(*facts: Fact) -> tuple[str, int] | None:
    found = judge(NAMES, WORKERS, (*FORMED, *facts))
    return None if found is None else (str(found), found.code)


LEFT = "it left after 5 operations, and worker 1 still needed it"
OTHER = "server 1 (server 0 to the others) "
KILLED = "was ended by SIGKILL (code 137)"
ALL_NOTICED = (noticed(SERVER, WORKER_0), noticed(WORKER_1, WORKER_0))
ALL_END = (Ended(SERVER, 1), Ended(WORKER_1, 1), Ended(SCHEDULER, 1))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        # It is known by its own end or words, however late it ends.
        ([Ended(WORKER_0, 7), *ALL_END], ("worker 0 exited with code 7", 7)),
        ([Ended(WORKER_0, 137)], (f"worker 0 {KILLED}", 137)),
        ([verdict(WORKER_0), *ALL_NOTICED, *ALL_END, Ended(WORKER_0, 137)], (f"worker 0 {KILLED}", 137)),
        (
            [failed(WORKER_0), verdict(WORKER_0), *ALL_NOTICED, *ALL_END, Ended(WORKER_0, 1)],
            ("worker 0 exited with code 1: ValueError: nan", 1),
        ),
        ([failed(WORKER_0), *ALL_NOTICED, *ALL_END], ("worker 0 failed: ValueError: nan", 1)),
        ([failed(WORKER_0), Ended(WORKER_0, 139)], ("worker 0 was ended by SIGSEGV (code 139)", 139)),
        ([NotStarted(WORKER_1, 127)], ("worker 1 could not be started", 127)),
        # Two errors of their own: the first.
        ([failed(WORKER_1), failed(WORKER_0), Ended(WORKER_0, 1)], ("worker 1 failed: ValueError: nan", 1)),
        ([Ended(WORKER_1, 3), Ended(WORKER_0, 5)], ("worker 1 exited with code 3", 3)),
        # An error after a loss, and a code after a loss, belong to the loss.
        (
            [noticed(WORKER_1, WORKER_0), failed(WORKER_1), Ended(WORKER_1, 9), Ended(WORKER_0, 137)],
            (f"worker 0 {KILLED}", 137),
        ),
        # It left in peace, and others needed it.
        (
            [Ended(WORKER_0, 0), noticed(WORKER_1, WORKER_0), verdict(WORKER_0, LEFT), *ALL_END],
            (f"worker 0 exited with code 0 too early: {LEFT}", 1),
        ),
        (
            [
                Ended(WORKER_0, 0),
                noticed(WORKER_1, WORKER_0, "x: worker 0 has left the job"),
                Ended(WORKER_1, 5),
            ],
            ("worker 0 exited with code 0 too early: x: worker 0 has left the job", 5),
        ),
        ([verdict(WORKER_0, LEFT), *ALL_END], (f"worker 0 was lost: {LEFT}", 1)),
        # It is silent.
        (
            [verdict(WORKER_1, "no heartbeat"), Ended(WORKER_0, 1), Halted(WORKER_1, 13)],
            ("worker 1 was lost: no heartbeat; its process 13 is stopped (SIGSTOP)", 1),
        ),
        # To have been given up by the others is no excuse.
        (
            [noticed(WORKER_1, WORKER_1, "no heartbeat"), Ended(WORKER_1, 1)],
            ("worker 1 exited with code 1", 1),
        ),
        # A verdict about one that had itself lost another: that one.
        ([noticed(WORKER_1, WORKER_0), verdict(WORKER_1)], ("worker 0 was lost: its connection closed", 1)),
        (
            [noticed(WORKER_1, WORKER_0), noticed(WORKER_0, WORKER_1), verdict(WORKER_1)],
            ("worker 1 was lost: its connection closed", 1),
        ),
        # Servers have numbers of their own in the job.
        ([Ended(SERVER, 137)], (f"server 0 (server 1 to the others) {KILLED}", 137)),
        (
            [noticed(WORKER_0, Whom("server", 0))],
            ("server 1 (server 0 to the others) was lost: its connection closed", 1),
        ),
        # Nobody saw more than a closed connection.
        (
            [noticed(WORKER_0, SCHEDULER), noticed(WORKER_1, SCHEDULER), Ended(WORKER_1, 4)],
            ("scheduler was lost: its connection closed", 4),
        ),
        # It is no process of this launcher.
        (
            [noticed(WORKER_0, Whom("worker", 7, "c"))],
            ("worker 7 (host c) was lost: its connection closed", 1),
        ),
        ([verdict(Whom("worker", 7, "c", 99), "silent")], ("worker 7 (host c, pid 99) was lost: silent", 1)),
        # Nobody in particular.
        ([verdict(None, "missing worker 1"), Ended(WORKER_0, 1)], ("missing worker 1", 1)),
        (
            [noticed(WORKER_0, None, "no result after 600 s"), Ended(WORKER_0, 1)],
            ("no result after 600 s", 1),
        ),
        (
            [noticed(WORKER_0, None, "?"), noticed(WORKER_1, SERVER)],
            ("server 0 (server 1 to the others) was lost: its connection closed", 1),
        ),
        # All that was wanted was done.
        ([Ended(WORKER_0, 0), Ended(WORKER_1, 0), Ended(SCHEDULER, 0), Ended(SERVER, 0)], None),
        ([Ended(WORKER_0, 0), verdict(WORKER_0), Ended(WORKER_1, 0), Ended(SCHEDULER, 1)], None),
        ([failed(WORKER_0), Ended(WORKER_0, 0), Ended(WORKER_1, 0)], None),
        (
            [verdict(WORKER_0), Ended(WORKER_0, 0), Ended(WORKER_1, 0), Ended(SERVER_1, 139)],
            (OTHER + "was ended by SIGSEGV (code 139)", 139),
        ),
        (
            [Ended(WORKER_0, 0), Ended(WORKER_1, 0), Ended(SERVER, 3)],
            ("server 0 (server 1 to the others) exited with code 3", 3),
        ),
        ([], None),
    ],
)
def test_the_culprit(facts: list[Fact], expected: tuple[str, int] | None) -> None:
    assert said(*facts) == expected


# A job on one machine: rank 0 has started the scheduler, which speaks through its pipe.
RANKS = ("rank 0", "rank 1")
INNER = Whom("scheduler", 0, "a", 77)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            [
                Told(
                    1, Noticed(Whom("worker", 1), Whom("scheduler", 0, "127.0.0.1"), "its connection closed")
                ),
                Told(0, Verdict(Whom("worker", 0), INNER, "it was ended by SIGKILL", 137)),
                *(Ended(0, 1), Ended(1, 1)),
            ],
            ("scheduler (host a, pid 77) was ended by SIGKILL (code 137)", 137, None),
        ),
        (
            [Told(0, Failed(INNER, "it got SIGTERM", 143), own=False), Ended(0, 1), Ended(1, 1)],
            ("scheduler (host a, pid 77) was ended by SIGTERM (code 143)", 143, None),
        ),
        (
            [Told(0, Failed(INNER, "OSError: no"), own=False), Ended(0, 1)],
            ("scheduler (host a, pid 77) failed: OSError: no", 1, None),
        ),
        (
            [Told(0, Verdict(INNER, Whom("worker", 1, "a", 5), "no heartbeat"), own=False), Ended(0, 1)],
            ("rank 1 was lost: no heartbeat", 1, 1),
        ),
    ],
)
def test_the_scheduler_of_rank_0(facts: list[Fact], expected: tuple[str, int, int | None]) -> None:
    formed = [
        Told(0, Joined(INNER), own=False),
        *(Told(rank, Joined(Whom("worker", rank, "a", rank + 4))) for rank in range(2)),
    ]
    found = judge(RANKS, {0, 1}, (*formed, *facts))
    assert found is not None and (str(found), found.code, found.process) == expected


def test_the_order_of_those_that_only_noticed_changes_nothing(seed: int) -> None:
    """Whoever ends first, and whether the culprit's own end comes before or after: the same sentence."""
    rng = random.Random(seed)
    for _ in range(200):
        rest: list[Fact] = [*ALL_NOTICED, verdict(WORKER_0)]
        ends: list[Fact] = [Ended(WORKER_0, 137), *ALL_END]
        rng.shuffle(rest)
        rng.shuffle(ends)
        assert said(*rest, *ends) == (f"worker 0 {KILLED}", 137)
