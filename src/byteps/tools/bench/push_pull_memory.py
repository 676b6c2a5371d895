"""Memory of a server: its peak against the bytes that were declared, and whether it grows with rounds."""

from __future__ import annotations

from byteps.tools.bench import report
from byteps.tools.bench.cluster import Cluster
from byteps.tools.bench.machine import memory_status
from byteps.tools.bench.options import Options
from byteps.tools.bench.plot import draw_memory
from byteps.tools.bench.push_pull_sizes import cluster_name
from byteps.tools.bench.screen import progress, say
from byteps.tools.bench.stats import Goal, Verdict, quantile
from byteps.tools.bench.team import numbered
from byteps.tools.units import format_bytes

__all__ = ["growth", "run"]

WORKERS, SERVERS = 2, 1
KB, MB = 1024, 1024**2
# About the mix of a small network: many biases, some layers, two big ones.
MIDDLE_SET = [4 * KB] * 16 + [64 * KB] * 32 + [MB] * 2
LARGE_TENSORS, LARGE_ROUNDS = 4, 5
STEPS = 50
STEP_TIMEOUT_S = 600.0
LIMIT_RATIO, LIMIT_EXTRA = 2.2, 64 * MB
LIMIT_GROWTH_MB = 0.5  # in half of the rounds

Point = dict[str, int]


def run(options: Options) -> list[Verdict]:
    """Measure, print and write; the verdicts on both goals."""
    title = f"server memory, {cluster_name(WORKERS, SERVERS)}"
    points: list[Point] = []
    large = [options.large_set // LARGE_TENSORS // 4 * 4] * LARGE_TENSORS
    middle = numbered("bench.middle", MIDDLE_SET)
    with Cluster(WORKERS, SERVERS, ["byteps"], streams=1) as cluster:
        (pid,) = cluster.server_pids("byteps")
        each = max(1, options.rounds // STEPS)
        with progress(title, -(-options.rounds // each) + 1) as step:
            done = 0
            while done < options.rounds:
                step(f"round {done:,} of {options.rounds:,}")
                count = min(each, options.rounds - done)
                cluster.repeat_many("byteps", "bench.middle", middle, count, STEP_TIMEOUT_S)
                done += count
                points.append({"rounds": done, **memory_status(pid)})
            step(f"{LARGE_ROUNDS} rounds of {format_bytes(sum(large))}")
            cluster.repeat_many(
                "byteps", "bench.large", numbered("bench.large", large), LARGE_ROUNDS, STEP_TIMEOUT_S
            )
        final = memory_status(pid)
        cluster.leave()
    declared = sum(MIDDLE_SET) + sum(large)
    verdicts = _verdicts(points, final["VmHWM"], declared)
    say(
        f"{title}: {format_bytes(points[-1]['VmRSS'])} after {options.rounds:,} rounds of "
        f"{format_bytes(sum(MIDDLE_SET))}; peak {format_bytes(final['VmHWM'])} with {format_bytes(declared)} "
        f"declared, {(final['VmHWM'] - LIMIT_EXTRA) / declared:.2f} times them + {format_bytes(LIMIT_EXTRA)}"
    )
    path = options.output / "push-pull-server-memory.json"
    extra = {"points": points, "final": final, "declared_bytes": declared}
    report.write(path, "push-pull-server-memory", options.settings(), [], verdicts, extra)
    picture = draw_memory(path.with_suffix(".png"), points)
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
    return verdicts


def growth(points: list[Point]) -> float:
    """Bytes by which the median of the last tenth is above the one of the tenth in the middle.

    In the first half pools fill up to the largest overlap of rounds that happens, in a few steps. A leak goes
    on in the second half as in the first.
    """
    tenth = max(1, len(points) // 10)
    middle = len(points) // 2
    early = [point["VmRSS"] for point in points[middle - tenth : middle] or points[:1]]
    late = [point["VmRSS"] for point in points[-tenth:]]
    return quantile(late, 0.5) - quantile(early, 0.5)


def _verdicts(points: list[Point], peak: int, declared: int) -> list[Verdict]:
    limit_mb = round((LIMIT_RATIO * declared + LIMIT_EXTRA) / MB, 1)
    rounds = points[-1]["rounds"]
    return [
        Verdict(
            Goal(
                f"server memory, {format_bytes(declared)} declared (limit {LIMIT_RATIO:g} times + 64 MB)",
                "{:.0f} MB at its peak",
                limit_mb,
                at_most=True,
            ),
            peak / MB,
        ),
        Verdict(
            Goal(
                f"server memory, second half of {rounds:,} rounds",
                "grows by {:.2f} MB",
                LIMIT_GROWTH_MB,
                at_most=True,
            ),
            growth(points) / MB,
        ),
    ]
