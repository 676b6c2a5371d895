"""Names that only some ranks have declared: what to say of them, and when. Pure.

Every operation needs all ranks, so a name that some have declared and some have not is awaited, or will be.
Most often the others are just slower, and nothing is wrong. But where ranks on *both* sides have names that
the other side lacks, or one that lacks a name waits at a barrier, they run different code or models, and
would wait for each other until the time-out. So all are told after a few seconds, with the names that are
nearest to each other, and again after longer and longer pauses. What is said stays true if they agree after
all: who has which name, and for how long.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from byteps.scheduler.value import Value

__all__ = ["Difference", "Pace", "Partial", "difference"]

AFTER_S, LOOK_S = 3.0, 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 60.0
MAX_SHOWN = 5
# Comparing names takes long, and the scheduler has other things to do: only the first names of a few sides
# are compared, each with those that were declared at about its place: models are gone through in order.
MAX_SIDES, MAX_COMPARED, WINDOW = 3, 32, 8
SHOWN_CHARACTERS = 100  # of a name, the last ones: that is where layers differ
NEAR = 0.7


@dataclass(frozen=True)
class Partial:
    """A name that some ranks have declared, and when the first of them did; ``anew``: with another shape."""

    name: str
    ranks: frozenset[int]
    since: float
    anew: bool = False


@dataclass(frozen=True)
class Difference:
    """What to say, nothing if ``text`` is empty; ``crossed`` when it cannot be that some are only slower."""

    text: str = ""
    crossed: bool = False


class Pace(Value):
    """When to look, and whether to say it: after 3 s, then 5, 10, 20... and every minute at last.

    What turns out to be no mere slowness is said at once.
    """

    def __init__(self) -> None:
        self._pause_s = FIRST_PAUSE_S
        self._not_before = self._looked_at = -math.inf
        self._crossed = False

    def due_at(self, oldest: float, newest: float) -> float:
        """When to look at names that were declared first between these times."""
        judged = newest <= self._looked_at - AFTER_S
        again_at = self._not_before if judged else min(self._not_before, self._looked_at + LOOK_S)
        return max(oldest + AFTER_S, again_at)

    def is_news(self, now: float, found: Difference) -> bool:
        """Whether to say what was found; then it will not be said again for a while."""
        self._looked_at = now
        worse = found.crossed and not self._crossed
        if not found.text or (now < self._not_before and not worse):
            return False
        if worse:
            self._pause_s = FIRST_PAUSE_S
        self._crossed = found.crossed
        self._not_before = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True


def difference(
    now: float, partials: Iterable[Partial], size: int, at_barrier: Collection[int] = ()
) -> Difference:
    """What ranks of a job of ``size`` have not agreed on for a while; ``at_barrier``: those that wait."""
    old = [partial for partial in partials if now - partial.since >= AFTER_S]
    if not old:
        return Difference()
    for_s = now - min(partial.since for partial in old)
    pairs = _nearest(old)
    stuck = sorted({rank for partial in old for rank in at_barrier if rank not in partial.ranks})
    crossed = bool(stuck) or _is_crossed(old)
    shown = [_pair(one, other, size) for one, other in pairs[:MAX_SHOWN]]
    paired = {partial for pair in pairs[:MAX_SHOWN] for partial in pair}
    alone = [partial for partial in old if partial not in paired]
    shown += [_where(partial, size) for partial in alone[: MAX_SHOWN - len(shown)]]
    rest = len(alone) - max(0, MAX_SHOWN - len(pairs[:MAX_SHOWN]))
    if rest > 0:
        shown.append(f"and {rest} more")
    text = f"for {for_s:.0f} s only some ranks have declared these names: {'; '.join(shown)}"
    if stuck:
        text += f"; {_workers(stuck)} {'waits' if len(stuck) == 1 else 'wait'} at a barrier"
    if any(".noname." in partial.name for partial in old):
        text += "; names with 'noname' are made from the order of calls without name="
    advice = "do all ranks run the same code and model?" if crossed else "perhaps the others are only slower"
    return Difference(f"{text}; {advice}", crossed)


def _is_crossed(partials: Sequence[Partial]) -> bool:
    """Whether two ranks have each a name that the other lacks. Ranks that are only slower have subsets."""
    sets = sorted({partial.ranks for partial in partials}, key=len)
    return any(not small <= large for small, large in itertools.pairwise(sets))


def _nearest(partials: Sequence[Partial]) -> list[tuple[Partial, Partial]]:
    """Names on different ranks that are probably meant to be one, the most similar first."""
    sides: dict[frozenset[int], list[Partial]] = {}
    for partial in partials:
        sides.setdefault(partial.ranks, []).append(partial)
    found: list[tuple[float, int, int, Partial, Partial]] = []  # how unlike, how far apart, a tie-breaker
    for one_side, other_side in itertools.combinations(list(sides.values())[:MAX_SIDES], 2):
        if one_side[0].ranks & other_side[0].ranks:
            continue
        for place, one in enumerate(one_side[:MAX_COMPARED]):
            matcher = difflib.SequenceMatcher(autojunk=False, b=_tail(one))
            near = range(max(0, place - WINDOW), min(place + WINDOW + 1, len(other_side)))
            for index in near:
                matcher.set_seq1(_tail(other_side[index]))
                if matcher.quick_ratio() >= NEAR:
                    distance = 1.0 - matcher.ratio()
                    found.append((distance, abs(index - place), len(found), one, other_side[index]))
    pairs, used = [], set()
    for distance, _, _, one, other in sorted(found, key=lambda each: each[:3]):
        if distance <= 1.0 - NEAR and one not in used and other not in used:
            used |= {one, other}
            pairs.append((one, other))
    return pairs


def _tail(partial: Partial) -> str:
    return partial.name[-SHOWN_CHARACTERS:]


def _pair(one: Partial, other: Partial, size: int) -> str:
    first, second = sorted((one, other), key=lambda partial: min(partial.ranks))
    return f"{_where(first, size)}, {_where(second, size)}"


def _where(partial: Partial, size: int) -> str:
    lacking = sorted(set(range(size)) - partial.ranks)
    name = repr(_tail(partial)) + (" with another shape" if partial.anew else "")
    if len(lacking) < len(partial.ranks):
        return f"{name} on all but {_workers(lacking)}"
    return f"{name} only on {_workers(sorted(partial.ranks))}"


def _workers(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:MAX_SHOWN])) + (" and others" if len(ranks) > MAX_SHOWN else "")
    return f"worker{'s' if len(ranks) > 1 else ''} {shown}"
