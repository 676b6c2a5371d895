"""One tensor of each size, summed by each peer in turn, in clusters of each shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from byteps.tools.bench import report
from byteps.tools.bench.bound import Shape, candidates, max_streams, shortlist
from byteps.tools.bench.cluster import Cluster
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.options import Options
from byteps.tools.bench.plot import draw_sizes
from byteps.tools.bench.screen import progress, say, table
from byteps.tools.bench.series import Sample, Series, ratio_of, rounds_per_sample, time_cells
from byteps.tools.bench.stats import Goal, Verdict, judge
from byteps.tools.units import format_bytes, format_count

__all__ = ["cluster_name", "find_shapes", "run", "settle"]

GOAL_BYTES = 64 * 1024**2
GOAL_OF_BOUND = 0.9
HEADER = ("size", "peer", "time", "spread", "speed", "CPU of all", "byteps is", "quartiles")

Tuned = dict[str, Any]


def run(options: Options) -> list[Verdict]:
    """Measure, print and write; the verdicts on the goals."""
    panels: dict[str, list[Series]] = {}
    tuning: list[Tuned] = []
    for servers in options.servers:
        for workers in options.workers:
            title = cluster_name(workers, servers)
            with Cluster(workers, servers, options.peers, max_streams()) as cluster:
                panels[title] = _measure(cluster, options, title, tuning)
                cluster.leave()
            table(f"push-pull, {title}", HEADER, _rows(panels[title], options.peers))
    everything = [one for series in panels.values() for one in series]
    verdicts = _verdicts(everything)
    path = options.output / "push-pull.json"
    report.write(path, "push-pull", options.settings(), everything, verdicts, {"bound_tuning": tuning})
    picture = draw_sizes(path.with_suffix(".png"), panels)
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
    return verdicts


def cluster_name(workers: int, servers: int) -> str:
    return f"{format_count(workers, 'worker')} + {format_count(servers, 'server')}"


def find_shapes(cluster: Cluster, nbytes: int, fixed: Shape | None) -> tuple[list[Shape], Tuned]:
    """The shapes of the bound that are worth measuring for this size, best first, and what was tried."""
    shapes = candidates(nbytes, max_streams())
    if fixed is not None and len(shapes) > 1:
        shapes = [fixed]
    inner = max(1, rounds_per_sample(nbytes, cluster.workers) // 4)
    finalists, times = shortlist(shapes, lambda each: cluster.measure("bound", nbytes, inner, each).time_s)
    tried = [{**vars(shape), "samples_s": samples} for shape, samples in times.items()]
    tuned = {"workers": cluster.workers, "servers": cluster.servers, "nbytes": nbytes, "tried": tried}
    return finalists, tuned


def settle(entrants: Sequence[Series]) -> tuple[list[Series], list[Series]]:
    """One series per peer, and those left out: the bound is the shape with the best median."""
    bounds = [one for one in entrants if one.peer == "bound"]
    best = min(bounds, key=lambda one: one.summary().median, default=None)
    kept = [one for one in entrants if one.peer != "bound" or one is best]
    return kept, [one for one in bounds if one is not best]


def _measure(cluster: Cluster, options: Options, title: str, tuning: list[Tuned]) -> list[Series]:
    entrants: dict[int, list[Series]] = {}
    tuned: dict[int, Tuned] = {}
    with progress(f"{title}: shapes of the bound", len(options.sizes)) as step:
        for nbytes in options.sizes:
            step(format_bytes(nbytes))
            entrants[nbytes], tuned[nbytes] = _entrants(cluster, nbytes, options)
    interleave(
        title, list(entrants.values()), lambda one, inner: _sample(cluster, one, inner), options.repeats
    )
    series = []
    for nbytes, each in entrants.items():
        kept, left_out = settle(each)
        series += kept
        if "bound" in cluster.peers:
            slower = [{**one.notes, "samples_s": one.samples_s} for one in left_out]
            tuning.append({**tuned[nbytes], "slower_finalists": slower})
    return series


def _entrants(cluster: Cluster, nbytes: int, options: Options) -> tuple[list[Series], Tuned]:
    inner = rounds_per_sample(nbytes, cluster.workers)
    shapes: list[Shape] = []
    tuned: Tuned = {}
    if "bound" in cluster.peers:
        shapes, tuned = find_shapes(cluster, nbytes, options.bound_shape)
    found = []
    for peer in cluster.peers:
        servers = 0 if peer == "gloo" else cluster.servers
        for notes in [vars(shape) for shape in shapes] if peer == "bound" else [{}]:
            found.append(Series(peer, cluster.workers, servers, nbytes, inner, notes=notes))
    return found, tuned


def _sample(cluster: Cluster, one: Series, inner: int) -> Sample:
    return cluster.measure(one.peer, one.nbytes, inner, Shape(**one.notes) if one.notes else None)


def _rows(series: Sequence[Series], asked: Sequence[str]) -> list[list[str]]:
    rows = []
    for nbytes in dict.fromkeys(one.nbytes for one in series):
        here = {one.peer: one for one in series if one.nbytes == nbytes}
        for index, peer in enumerate(asked):
            size = format_bytes(nbytes) if index == 0 else ""
            rows.append([size, peer, *(_cells(here[peer], series) if peer in here else ["n/a"] * 6)])
    return rows


def _cells(one: Series, series: Sequence[Series]) -> list[str]:
    ratio = ratio_of(series, one.peer, nbytes=one.nbytes) if one.peer != "byteps" else None
    return [
        *time_cells(one),
        f"{ratio.value:.2f} x as fast" if ratio else "",
        f"{ratio.q1:.2f} to {ratio.q3:.2f}" if ratio else "",
    ]


def _verdicts(series: Sequence[Series]) -> list[Verdict]:
    verdicts = []
    for workers, servers in dict.fromkeys(
        (one.workers, one.servers) for one in series if one.peer == "byteps"
    ):
        if any(one.nbytes == GOAL_BYTES for one in series):
            subject = f"{format_bytes(GOAL_BYTES)}, {cluster_name(workers, servers)}"
            ratio = ratio_of(series, "bound", workers=workers, servers=servers, nbytes=GOAL_BYTES)
            verdicts.append(judge(Goal(subject, "{:.2f} of the bound", GOAL_OF_BOUND, ceiling=1.0), ratio))
    return verdicts
