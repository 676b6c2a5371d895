"""What recordings say in a few lines: where time went by tensor, who came last, what was hidden. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from byteps.observe.recording import Recording
from byteps.observe.rounds import WorkerRound, server_rounds, steps, waits, worker_rounds
from byteps.observe.window import chosen

__all__ = ["STAGES", "Summary", "TensorTimes", "covered_ns", "summary"]

STAGES = ("queue", "push", "wait", "pull", "finish")


@dataclass
class TensorTimes:
    """One tensor over all rounds of all ranks: milliseconds, means."""

    name: str
    rounds: int
    bytes: int
    total_ms: float
    stage_ms: dict[str, float]
    last: dict[int, int]  # how often each rank's contribution came last


@dataclass
class Summary:
    """Everything that ``bps trace show`` prints."""

    members: list[str] = field(default_factory=list)
    lost_events: int = 0
    clock_error_ns: int = 0
    steps: int = 0
    step_ms: float = 0.0  # median
    communicating_ms: float = 0.0  # per step and rank: some operation was in flight
    exposed_ms: float = 0.0  # of that: somebody waited for it
    last: dict[int, int] = field(default_factory=dict)
    late_ms: dict[int, float] = field(default_factory=dict)  # mean, by the rank that was last
    tensors: list[TensorTimes] = field(default_factory=list)

    @property
    def hidden(self) -> float:
        """The share of communication beside which something else was done."""
        return 1 - self.exposed_ms / self.communicating_ms if self.communicating_ms else 0.0


def summary(recordings: Sequence[Recording]) -> Summary:
    """Of all members together."""
    found = Summary()
    times: dict[str, list[WorkerRound]] = defaultdict(list)
    last: dict[str, Counter[int]] = defaultdict(Counter)
    late: dict[int, list[int]] = defaultdict(list)
    lengths: list[int] = []
    for header, events in chosen(recordings):
        names = header.tensors
        found.members.append(str(header))
        found.lost_events += sum(lost for _, lost, _ in header.threads)
        found.clock_error_ns = max(found.clock_error_ns, header.clock_error_ns)
        if header.role == "server":
            for seen in server_rounds(events):
                if seen.summed is not None and len(seen.arrived) > 1:
                    last[names.get(seen.tensor, f"tensor {seen.tensor}")][seen.last_rank] += 1
                    late[seen.last_rank].append(seen.late_ns)
            continue
        whole = [each for each in worker_rounds(events) if each.ready_ns and each.done_ns]
        for each in whole:
            times[names.get(each.tensor, f"tensor {each.tensor}")].append(each)
        ended = steps(events)
        lengths += [step.end_ns - step.begin_ns for step in ended]
        if ended:
            begin, end = ended[0].begin_ns, ended[-1].end_ns
            busy = covered_ns(((each.ready_ns, each.done_ns) for each in whole), begin, end)
            exposed = covered_ns(((wait.begin_ns, wait.end_ns) for wait in waits(events)), begin, end)
            found.communicating_ms += busy / 1e6
            found.exposed_ms += exposed / 1e6
    if lengths:
        found.steps, found.step_ms = len(lengths), median(lengths) / 1e6
        found.communicating_ms /= len(lengths)
        found.exposed_ms /= len(lengths)
    found.last = dict(sum(last.values(), Counter()))
    found.late_ms = {rank: mean(each) / 1e6 for rank, each in late.items()}
    found.tensors = [_tensor(name, rounds, last[name]) for name, rounds in times.items()]
    found.tensors.sort(key=lambda each: -each.total_ms)
    return found


def _tensor(name: str, rounds: list[WorkerRound], last: Counter[int]) -> TensorTimes:
    stages: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for each in rounds:
        for stage, begin, end in each.stages():
            if stage in stages:
                stages[stage].append((end - begin) / 1e6)
    return TensorTimes(
        name,
        len(rounds),
        rounds[0].bytes,
        mean(each.done_ns - each.ready_ns for each in rounds) / 1e6,
        {stage: mean(values) for stage, values in stages.items() if values},
        dict(last),
    )


def covered_ns(spans: Iterable[tuple[int, int]], begin: int, end: int) -> int:
    """How much of the time between ``begin`` and ``end`` is inside any of the spans.

    >>> covered_ns([(0, 4), (2, 6), (8, 20)], 1, 10)
    7
    """
    total, free = 0, begin
    for first, last in sorted(spans):
        first, last = max(first, free), min(last, end)
        if last > first:
            total += last - first
            free = last
    return total
