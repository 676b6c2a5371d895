"""What ``bps bench local`` measures: one tensor of each size, and whole sets of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from byteps.tools.bench import gradient_sets, local_goals, report
from byteps.tools.bench.interleave import Measure, interleave
from byteps.tools.bench.local_goals import Line
from byteps.tools.bench.local_ranks import LocalRanks
from byteps.tools.bench.plot import draw_bars, draw_sizes
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series, rounds_per_sample, time_cells
from byteps.tools.units import format_bytes

__all__ = ["GRADIENT_RANKS", "Options", "gradients", "sizes"]

GRADIENT_RANKS = 2
BUCKET_BYTES = 25 * 1024**2  # as DistributedDataParallel has them
MOST_ROUNDS = 100  # of a sample: a round of a small tensor takes some microseconds
HEADER = ("size", "peer", "time", "spread", "speed", "CPU of all")

Panels = dict[str, list[Series]]


@dataclass(frozen=True)
class Options:
    """What was asked for; ``bps bench local --help`` explains each."""

    sizes: tuple[int, ...]
    ranks: tuple[int, ...]
    peers: tuple[str, ...]
    gradients: tuple[str, ...]
    repeats: int
    output: Path

    def settings(self) -> dict[str, Any]:
        """For the result file."""
        return {**asdict(self), "output": str(self.output)}


def sizes(options: Options) -> list[Line]:
    """Measure one tensor of each size, print and write; every ratio."""
    panels: Panels = {}
    lines: list[Line] = []
    for ranks in options.ranks:
        title = f"{ranks} ranks"
        with LocalRanks(ranks, options.peers, max(options.sizes)) as group:
            settings = [_entrants(group, nbytes) for nbytes in options.sizes]
            interleave(title, settings, _measure_one(group), options.repeats)
            group.leave()
        panels[title] = [one for entrants in settings for one in entrants]
        lines += local_goals.size_lines(ranks, panels[title])
        table(f"sums on one machine, {title}", HEADER, _rows(settings))
    _write(options, "local", panels, lines, draw_sizes)
    return lines


def gradients(options: Options) -> list[Line]:
    """Measure whole sets of gradients, all started before the first is waited for; the ratios to Gloo."""
    panels: Panels = {}
    lines: list[Line] = []
    # The bound has no tensors: what it says about bytes, the largest size has said already.
    peers = [peer for peer in options.peers if peer != "bound"]
    for name in options.gradients:
        ours = gradient_sets.backward(gradient_sets.SETS[name]())
        nbytes = gradient_sets.nbytes(ours)
        buckets = gradient_sets.buckets(nbytes, BUCKET_BYTES)
        title = f"{name}: {len(ours)} gradients, {nbytes / 1e6:.0f} MB, {GRADIENT_RANKS} ranks"
        with LocalRanks(GRADIENT_RANKS, peers, largest_bytes=4) as group:
            tensors = {peer: buckets if peer == "gloo" else ours for peer in group.peers}
            entrants = [
                Series(peer, GRADIENT_RANKS, 0, nbytes, 1, tensors=len(each), notes={"set": name})
                for peer, each in tensors.items()
            ]
            interleave(title, [entrants], _measure_set(group, tensors), options.repeats)
            group.leave()
        panels[title] = entrants
        lines += local_goals.gradient_lines(name, entrants)
        table(title, HEADER, _rows([entrants]))
    _write(options, "local-gradients", panels, lines, draw_bars)
    return lines


def _entrants(group: LocalRanks, nbytes: int) -> list[Series]:
    inner = rounds_per_sample(nbytes, group.workers, MOST_ROUNDS)
    return [Series(peer, group.workers, 0, nbytes, inner) for peer in group.peers]


def _measure_one(group: LocalRanks) -> Measure:
    return lambda one, inner: group.measure(one.peer, one.nbytes, inner)


def _measure_set(group: LocalRanks, tensors: dict[str, gradient_sets.Tensors]) -> Measure:
    def measure(one: Series, inner: int) -> Sample:
        # Gloo's buckets are a set of their own, though they lie in the same kind of memory.
        name = f"{one.notes['set']}.{'buckets' if one.peer == 'gloo' else 'gradients'}"
        return group.measure_many(one.peer, name, tensors[one.peer], inner)

    return measure


def _rows(settings: Sequence[Sequence[Series]]) -> list[list[str]]:
    return [
        [format_bytes(one.nbytes) if index == 0 else "", one.peer, *time_cells(one)]
        for entrants in settings
        for index, one in enumerate(entrants)
    ]


def _write(
    options: Options,
    benchmark: str,
    panels: Panels,
    lines: Sequence[Line],
    draw: Callable[[Path, Panels], Path | None],
) -> None:
    path = options.output / f"{benchmark}.json"
    everything = [one for series in panels.values() for one in series]
    ratios = [{"what": line.what, "beside": line.beside, **asdict(line.ratio)} for line in lines]
    verdicts = local_goals.verdicts(lines)
    report.write(path, benchmark, options.settings(), everything, verdicts, {"ratios": ratios})
    picture = draw(path.with_suffix(".png"), panels)
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
