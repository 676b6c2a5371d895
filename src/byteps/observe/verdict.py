"""Where the time of steps went, the largest cause by name, and what a step would take without it. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from byteps.observe.walk import Cause, StepParts

__all__ = ["KINDS", "Verdict", "named", "of_step", "verdict"]

KINDS = ("compute", "rank", "uplink", "downlink", "server", "codec", "queue", "local", "unknown")
_COMPUTE = Cause("compute")
WORTH = 0.05  # of a step: less is not called a cause
MOSTLY = 0.6  # of a kind: so much of it makes one member the cause


@dataclass
class Verdict:
    """Of many steps. Milliseconds are means over ranks, medians over steps."""

    steps: int = 0
    step_ms: float = 0.0
    parts_ms: dict[str, float] = field(default_factory=dict)  # by kind; they add up to the mean step
    mean_ms: float = 0.0
    cause: Cause = _COMPUTE
    cause_steps: int = 0  # in which it was the largest
    cause_ms: float = 0.0
    advice: str = ""

    @property
    def without_ms(self) -> float:
        """A step without the largest cause."""
        return max(0.0, self.step_ms - self.cause_ms)

    def text(self) -> str:
        """One paragraph."""
        if not self.steps:
            return "no whole step was seen"
        shares = ", ".join(
            f"{kind} {ms:.1f}" for kind, ms in self.parts_ms.items() if ms >= 0.01 * self.mean_ms
        )
        head = f"a step takes {self.step_ms:.1f} ms (mean {self.mean_ms:.1f}: {shares})"
        if self.cause.kind == "compute":
            return f"{head}; nothing but computing takes {WORTH:.0%} of it"
        return (
            f"{head}; {named(self.cause)} in {self.cause_steps} of {self.steps} steps, by "
            f"{self.cause_ms:.1f} ms: without it a step takes {self.without_ms:.1f} ms. {self.advice}"
        )


def named(cause: Cause) -> str:
    """A cause in words."""
    who = "" if cause.rank < 0 else f" of rank {cause.rank}"
    where = "" if cause.server < 0 else f" server {cause.server}"
    return {
        "compute": "computing",
        "rank": f"rank {cause.rank} was late" if cause.rank >= 0 else "ranks were late in turns",
        "uplink": f"the uplink{who}{' to' * bool(where)}{where}",
        "downlink": f"the downlink{who}{' from' * bool(where)}{where}",
        "server": f"the sums of{where or ' the servers'}",
        "codec": f"the codec{who}",
        "queue": f"the queue{who}",
        "local": f"the work inside the machine{who}",
        "unknown": "something that was not recorded",
    }[cause.kind]


def of_step(ranks: Sequence[StepParts]) -> tuple[Cause, float]:
    """The largest cause in one step of all ranks but computing, and its nanoseconds per rank."""
    kinds: dict[str, float] = defaultdict(float)
    whose: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for each in ranks:
        for cause, part in each.parts.items():
            if cause.kind == "compute":
                continue
            # A rank that others wait for does not wait for itself: the mean is over the others.
            share = len(ranks) - 1 if cause.kind == "rank" and len(ranks) > 1 else len(ranks)
            kinds[cause.kind] += part / share
            whose[cause.kind][cause.rank, cause.server] += part
    length = sum(each.length_ns for each in ranks) / len(ranks)
    kind = max(kinds, key=lambda each: kinds[each], default="compute")
    if not kinds or kinds[kind] < WORTH * length:
        return Cause("compute"), 0.0
    return Cause(kind, *_who(whose[kind])), kinds[kind]


def _who(lengths: Mapping[tuple[int, int], int]) -> tuple[int, int]:
    """The rank and the server that have most of it; -1: it is spread."""
    return _most(lengths, 0), _most(lengths, 1)


def _most(lengths: Mapping[tuple[int, int], int], place: int) -> int:
    by: Counter[int] = Counter()
    for who, length in lengths.items():
        by[who[place]] += length
    top, most = by.most_common(1)[0]
    return top if most >= MOSTLY * by.total() else -1


def verdict(walked: Iterable[StepParts]) -> Verdict:
    """Of all steps that every rank has seen."""
    by_number: dict[int, list[StepParts]] = defaultdict(list)
    for each in walked:
        by_number[each.number].append(each)
    most = max((len(each) for each in by_number.values()), default=0)
    whole = [ranks for ranks in by_number.values() if len(ranks) == most]
    if not whole:
        return Verdict()
    found = Verdict(steps=len(whole))
    lengths = [sum(each.length_ns for each in ranks) / most / 1e6 for ranks in whole]
    found.step_ms, found.mean_ms = median(lengths), sum(lengths) / len(lengths)
    totals: dict[str, float] = defaultdict(float)
    for ranks in whole:
        for each in ranks:
            for part, lasted in each.parts.items():
                totals[part.kind] += lasted / 1e6 / most / len(whole)
    found.parts_ms = {kind: totals[kind] for kind in KINDS if totals[kind] > 0}
    causes: dict[Cause, list[float]] = defaultdict(list)
    for ranks in whole:
        cause, length = of_step(ranks)
        causes[cause].append(length / 1e6)
    found.cause = max(causes, key=lambda each: (len(causes[each]), sum(causes[each])))
    found.cause_steps, found.cause_ms = len(causes[found.cause]), median(causes[found.cause])
    found.advice = _advice(found)
    return found


def _advice(of: Verdict) -> str:
    half_ms, less_ms = of.cause_ms / 2, of.step_ms - of.cause_ms / 2
    if of.cause.kind == "rank" and of.cause.rank < 0:
        return "Ranks take turns in being late: their work differs from step to step; balance it."
    return {
        "rank": f"Look at the machine of rank {of.cause.rank}: what else runs there, and is its data slower?",
        "uplink": f"compression_params={{'compressor': 'fp16'}} halves it: {less_ms:.1f} ms a step; "
        "CrossBarrier hides what the next forward pass does not need at once.",
        "downlink": f"More servers share it, and compression halves what is sent: {less_ms:.1f} ms a step.",
        "server": "Twice as many servers, or BYTEPS_SERVER_ENGINE_THREAD with cores for them, save "
        f"{half_ms:.1f} ms.",
        "codec": f"Twice the BYTEPS_THREADPOOL_SIZE saves up to {half_ms:.1f} ms; a cheaper codec more.",
        "queue": "Operations wait for the thread that sends: use fewer and larger ones, or free a core.",
        "local": "The ranks of a machine wait for its memory and cores: fewer ranks or more cores on it.",
    }.get(of.cause.kind, "")
