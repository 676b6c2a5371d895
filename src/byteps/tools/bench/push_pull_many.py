"""Many small tensors, all started at once: the cost of an operation that need not wait for its answer."""

from __future__ import annotations

from byteps.tools.bench import report
from byteps.tools.bench.bound import max_streams
from byteps.tools.bench.cluster import Cluster
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.options import Options
from byteps.tools.bench.plot import draw_bars
from byteps.tools.bench.push_pull_sizes import Tuned, cluster_name, find_shapes
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series, ratio_of
from byteps.tools.bench.stats import Goal, Verdict, judge
from byteps.tools.bench.team import numbered
from byteps.tools.units import format_bytes, format_time

__all__ = ["run"]

WORKERS, SERVERS = 2, 1
TENSOR_BYTES = 4096
GOAL_TIMES_GLOO = 10.0


def run(options: Options) -> list[Verdict]:
    """Measure, print and write; the verdict on the goal."""
    subject = f"{options.tensors:,} tensors of {format_bytes(TENSOR_BYTES)}, {cluster_name(WORKERS, SERVERS)}"
    nbytes = options.tensors * TENSOR_BYTES
    tensors = numbered("bench.many", [TENSOR_BYTES] * options.tensors)
    tuning: list[Tuned] = []
    with Cluster(WORKERS, SERVERS, options.peers, max_streams()) as cluster:
        series = {peer: _series(peer, nbytes, options.tensors) for peer in cluster.peers}
        shape = None
        if "bound" in series:  # it is no part of the goal here: the best of a few trials will do
            shapes, tuned = find_shapes(cluster, nbytes, options.bound_shape)
            shape = shapes[0]
            tuning.append({**tuned, "chosen": vars(shape)})

        def measure(one: Series, inner: int) -> Sample:
            if one.peer == "bound":  # it has no tensors: the same bytes in one piece
                return cluster.measure("bound", nbytes, inner, shape)
            return cluster.measure_many(one.peer, "bench.many", tensors, inner)

        interleave(subject, [list(series.values())], measure, options.repeats)
        cluster.leave()
    everything = list(series.values())
    verdict = judge(
        Goal(subject, "{:.1f} times as fast as Gloo", GOAL_TIMES_GLOO), ratio_of(everything, "gloo")
    )
    table(
        subject, ["peer", "all of them", "quartiles", "each", "CPU of all"], [_row(one) for one in everything]
    )
    path = options.output / "push-pull-many.json"
    report.write(path, "push-pull-many", options.settings(), everything, [verdict], {"bound_tuning": tuning})
    picture = draw_bars(path.with_suffix(".png"), {subject: everything})
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
    return [verdict]


def _series(peer: str, nbytes: int, tensors: int) -> Series:
    one_piece = {"note": "the same bytes in one piece"} if peer == "bound" else {}
    return Series(
        peer, WORKERS, 0 if peer == "gloo" else SERVERS, nbytes, inner=1, tensors=tensors, notes=one_piece
    )


def _row(one: Series) -> list[str]:
    summary = one.summary()
    return [
        one.peer + (" (one piece)" if one.notes else ""),
        format_time(summary.median),
        f"{format_time(summary.q1)} to {format_time(summary.q3)}",
        format_time(summary.median / one.tensors),
        format_time(one.cpu_s()),
    ]
