"""What ``bps top`` makes of two answers of the scheduler."""

from __future__ import annotations

from byteps.control.messages import Counted, Numbers
from byteps.observe.metrics import Sample
from byteps.tools.live import live
from byteps.tools.top import lines


def numbers(at: float, *members: Counted) -> Numbers:
    return Numbers(0, at, "running", "2 of 2 workers, 1 of 1 servers", list(members))


def worker(rank: int, steps: int, seconds: float, waited: float, sent: float, age_s: float = 0.1) -> Counted:
    samples = [
        Sample("byteps_step_seconds", ("4",), steps),
        Sample("byteps_step_seconds", ("sum",), seconds),
        Sample("byteps_exposed_wait_seconds", (), waited),
        Sample("byteps_wire_bytes", ("server 0", "sent"), sent),
        Sample("byteps_wire_bytes", ("server 0", "received"), sent / 2),
        Sample("byteps_in_flight_bytes", ("server 0",), 3e6),
    ]
    return Counted("worker", rank, f"host {rank}", age_s, samples)


def server(waited: dict[str, float]) -> Counted:
    samples = [Sample("byteps_waited_for_seconds", (rank,), s) for rank, s in waited.items()]
    return Counted("server", 0, "host s", 0.2, samples)


def test_rates_between_two_moments() -> None:
    before = numbers(10.0, server({"0": 1.0}), worker(0, 10, 5.0, 1.0, 1e6))
    now = numbers(
        12.0, server({"0": 1.1, "1": 0.9}), worker(0, 30, 6.0, 1.5, 5e6), worker(1, 3, 1.0, 0.0, 0.0)
    )
    found = live(before, now)
    one = next(each for each in found.members if (each.role, each.rank) == ("worker", 0))
    assert (one.steps, one.step_ms, one.waiting) == (10.0, 50.0, 0.25)
    assert (one.sent_bytes, one.received_bytes, one.in_flight_bytes) == (2e6, 1e6, 3e6)
    assert found.slowest == 1
    new = next(each for each in found.members if (each.role, each.rank) == ("worker", 1))
    assert new.steps == 0.0  # seen for the first time: no rate yet


def test_a_member_that_began_anew_has_no_negative_rates() -> None:
    found = live(numbers(1.0, worker(0, 10, 5.0, 1.0, 1e6)), numbers(2.0, worker(0, 1, 0.1, 0.0, 10.0)))
    assert found.members[0].steps == 0.0 and found.members[0].sent_bytes == 0.0


def test_the_table_names_who_is_waited_for_and_who_is_silent() -> None:
    before = numbers(1.0, server({}), worker(0, 1, 0.1, 0.0, 0.0, age_s=9.0))
    shown = lines(live(before, numbers(2.0, server({"3": 0.5}), worker(0, 2, 0.2, 0.0, 0.0, age_s=9.0))))
    assert "waited for: rank 3 100%" in shown
    assert any("worker 0 (host 0)" in line and "no numbers for 9 s" in line for line in shown)
    assert lines(live(before, before))[1] == "nobody is waited for"
