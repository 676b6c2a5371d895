"""What a job does right now, from the numbers that its members have told at two moments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from byteps.control.messages import Counted, Numbers

__all__ = ["Live", "Member", "live"]

Totals = Mapping[tuple[str, tuple[str, ...]], float]


@dataclass
class Member:
    """One member, per second."""

    role: str
    rank: int
    host: str
    age_s: float  # of its numbers
    steps: float = 0.0
    step_ms: float = 0.0  # mean of those that ended; 0: none did
    waiting: float = 0.0  # share of the time that threads waited for results; above 1: several did
    sent_bytes: float = 0.0
    received_bytes: float = 0.0
    in_flight_bytes: float = 0.0
    rounds: float = 0.0


@dataclass
class Live:
    """The job."""

    phase: str
    text: str
    over_s: float
    members: list[Member] = field(default_factory=list)
    waited_for: dict[int, float] = field(
        default_factory=dict
    )  # share of the time that rounds waited, by rank

    @property
    def slowest(self) -> int | None:
        """The rank that is waited for most, if anybody is."""
        return max(self.waited_for, key=lambda rank: self.waited_for[rank], default=None)


def live(before: Numbers, now: Numbers) -> Live:
    """What has happened between two answers of the scheduler."""
    over_s = max(now.now_s - before.now_s, 1e-9)
    found = Live(now.phase, now.text, over_s)
    known = {(each.role, each.rank): _totals(each) for each in before.members}
    for each in now.members:
        old, new = known.get((each.role, each.rank)), _totals(each)
        member = Member(each.role, each.rank, each.host, each.age_s)
        found.members.append(member)
        member.in_flight_bytes = sum(
            value for (name, _), value in new.items() if name == "byteps_in_flight_bytes"
        )
        if old is None:
            continue
        _rates(member, old, new, over_s)
        for (name, labels), value in new.items():
            if name == "byteps_waited_for_seconds" and labels and labels[0].isdecimal():
                rank, more = int(labels[0]), value - old.get((name, labels), 0.0)
                if more > 0:
                    found.waited_for[rank] = found.waited_for.get(rank, 0.0) + more / over_s
    return found


def _totals(member: Counted) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(sample.name, sample.labels): sample.value for sample in member.samples}


def _rates(member: Member, old: Totals, new: Totals, over_s: float) -> None:
    def more(name: str, *labels: str) -> float:
        key = name, labels
        return max(0.0, new.get(key, 0.0) - old.get(key, 0.0))

    steps = sum(
        more(name, *labels)
        for name, labels in new
        if name == "byteps_step_seconds" and labels and labels[0].isdecimal()
    )
    member.steps = steps / over_s
    member.step_ms = 1e3 * more("byteps_step_seconds", "sum") / steps if steps else 0.0
    member.waiting = more("byteps_exposed_wait_seconds") / over_s
    member.rounds = more("byteps_rounds") / over_s
    for name, labels in new:
        if name == "byteps_wire_bytes" and len(labels) == 2:
            if labels[1] == "sent":
                member.sent_bytes += more(name, *labels) / over_s
            else:
                member.received_bytes += more(name, *labels) / over_s
