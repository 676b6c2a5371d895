"""The samples of a benchmark: one sample, all samples of one peer in one setting, and ratios between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from byteps.tools.bench import exact
from byteps.tools.bench.stats import Ratio, Summary, quantile, speed_ratio, summarize
from byteps.tools.units import format_time

__all__ = ["Sample", "Series", "ratio_of", "rounds_per_sample", "time_cells"]


@dataclass(frozen=True)
class Sample:
    """One round: how long it took, the CPU time of all workers and servers together, and of servers alone."""

    time_s: float
    cpu_s: float
    server_cpu_s: float = 0.0


@dataclass
class Series:
    """All samples of one peer in one setting, in the order of the repetitions."""

    peer: str
    workers: int
    servers: int
    nbytes: int  # that one worker contributes in one round
    inner: int  # rounds in a row that make one sample
    samples_s: list[float] = field(default_factory=list)
    samples_cpu_s: list[float] = field(default_factory=list)  # of all workers and servers together
    samples_server_cpu_s: list[float] = field(default_factory=list)
    tensors: int = 1
    notes: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> Summary:
        return summarize(self.samples_s)

    def add(self, sample: Sample) -> None:
        self.samples_s.append(sample.time_s)
        self.samples_cpu_s.append(sample.cpu_s)
        self.samples_server_cpu_s.append(sample.server_cpu_s)

    def cpu_s(self) -> float:
        return quantile(self.samples_cpu_s, 0.5)

    def cpu_s_per_gb(self) -> tuple[float, float]:
        """Of all workers and of all servers, for each GB of gradients that workers contribute."""
        pairs = list(zip(self.samples_cpu_s, self.samples_server_cpu_s, strict=True))
        gigabytes = self.workers * self.nbytes / 1e9
        on_servers = quantile([server for _, server in pairs], 0.5)
        return quantile([every - server for every, server in pairs], 0.5) / gigabytes, on_servers / gigabytes

    def algorithm_bytes_per_s(self) -> float:
        return self.nbytes / self.summary().median


def ratio_of(series: Sequence[Series], peer: str, ours: str = "byteps", **where: int) -> Ratio | None:
    """How many times as fast as ``peer`` we are in one setting; None when one of both was not measured."""
    found = {
        one.peer: one.samples_s
        for one in series
        if one.samples_s and all(getattr(one, name) == value for name, value in where.items())
    }
    return speed_ratio(found[ours], found[peer]) if ours in found and peer in found else None


def rounds_per_sample(nbytes: int, workers: int, most: int = 50) -> int:
    """Enough rounds in a row that a sample is well above what a clock and a wake-up cost."""
    wanted = max(2, min(most, 128 * 1024**2 // nbytes))
    return min(wanted, exact.rounds_that_fit(workers) - 1)


def time_cells(one: Series) -> list[str]:
    """What a table says of a series alone: time, spread, speed, CPU time."""
    summary = one.summary()
    return [
        format_time(summary.median),
        f"±{(summary.q3 - summary.q1) / 2 / summary.median:.0%}",
        f"{one.algorithm_bytes_per_s() / 1e9:.3f} GB/s",
        format_time(one.cpu_s()),
    ]
