"""The order of a measurement: in every repetition every setting, and in it every peer, in changing order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byteps.tools.bench.screen import progress
from byteps.tools.bench.series import Sample, Series
from byteps.tools.bench.stats import orders
from byteps.tools.units import format_bytes

__all__ = ["Measure", "interleave"]

Measure = Callable[[Series, int], Sample]  # of one series, with so many rounds in a row


def interleave(
    title: str,
    settings: Sequence[Sequence[Series]],
    measure: Measure,
    repeats: int,
    warm: Sequence[Series] | None = None,
) -> None:
    """Fill the series of every setting. What disturbs the machine for a while disturbs all of them.

    ``warm`` are run once before, uncounted: to declare tensors, to warm caches and connections. All, if None.
    """
    for one in [one for entrants in settings for one in entrants] if warm is None else warm:
        measure(one, 1)
    plans = [orders(entrants, repeats) for entrants in settings]
    with progress(title, repeats * sum(map(len, settings))) as step:
        for repetition in range(repeats):
            for plan in plans:
                for one in plan[repetition]:
                    step(f"{repetition + 1} of {repeats}, {format_bytes(one.nbytes)}, {one.peer}")
                    one.add(measure(one, one.inner))
