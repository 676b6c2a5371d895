"""What encryption costs: the same sums over loopback, plain and encrypted, and what the cipher alone takes.

The bound is the plain time and the cipher's own processor time for the same bytes, spread over all cores:
every byte of a tensor is sealed and opened once on its way to the server and once on its way back. The cipher
is measured between the repetitions, memory to memory in the caches, as ``openssl speed`` does it.
"""

from __future__ import annotations

import os
import secrets

from byteps import _core
from byteps.errors import ConfigError
from byteps.tools.bench import report
from byteps.tools.bench.cluster import Cluster
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.options import Options
from byteps.tools.bench.push_pull_sizes import cluster_name
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series, ratio_of, rounds_per_sample, time_cells
from byteps.tools.bench.stats import Goal, Ratio, Verdict, judge, quantile
from byteps.tools.units import format_bytes

__all__ = ["run"]

ON = "encrypted"
GOAL_BYTES = 64 * 1024**2
GOAL_OF_PLAIN, GOAL_OF_BOUND = 0.6, 0.8
CIPHER_BYTES = 256 * 1024**2
HEADER = ("size", "peer", "time", "spread", "speed", "CPU of all", "CPU s per GB", "encrypted is")


def run(options: Options) -> list[Verdict]:
    """Measure, print and write; the verdicts on the goals."""
    try:
        best = _core.ciphers()[0]
    except (RuntimeError, IndexError) as error:
        raise ConfigError(f"--encrypt: {error}") from None
    say(f"{_core.libcrypto_version()}, {best}")
    verdicts: list[Verdict] = []
    everything: list[Series] = []
    per_byte: list[float] = []  # processor seconds to seal and open one
    for servers in options.servers:
        for workers in options.workers:
            series = _measure(workers, servers, options, per_byte)
            everything += series
            title = cluster_name(workers, servers)
            table(f"push-pull over encrypted loopback, {title}", HEADER, _rows(series))
            verdicts += _verdicts(series, title, per_byte)
    cost = quantile(per_byte, 0.5) * 1e9
    say(f"the cipher alone: {cost:.3f} processor seconds to seal and open 1 GB")
    path = options.output / "push-pull-encrypted.json"
    notes = {"cipher": best, "libcrypto": _core.libcrypto_version(), "cipher_s_per_byte": per_byte}
    report.write(path, "push-pull-encrypted", options.settings(), everything, verdicts, notes)
    say(f"all samples: {path}")
    return verdicts


def _measure(workers: int, servers: int, options: Options, per_byte: list[float]) -> list[Series]:
    sealed = {"BYTEPS_ENCRYPT": "all", "BYTEPS_JOB_SECRET": secrets.token_hex(32)}
    with (
        Cluster(workers, servers, ["byteps"], 0, {"BYTEPS_ENCRYPT": "0"}) as plain,
        Cluster(workers, servers, ["byteps"], 0, sealed) as encrypted,
    ):
        clusters = {"plain": plain, ON: encrypted}
        series = [
            [Series(peer, workers, servers, nbytes, rounds_per_sample(nbytes, workers)) for peer in clusters]
            for nbytes in options.sizes
        ]

        def sample(one: Series, inner: int) -> Sample:
            if one.peer == ON:
                per_byte.append(sum(_core.cipher_seconds(CIPHER_BYTES)) / CIPHER_BYTES)
            return clusters[one.peer].measure("byteps", one.nbytes, inner)

        interleave(cluster_name(workers, servers), series, sample, options.repeats)
        for cluster in clusters.values():
            cluster.leave()
    return [one for entrants in series for one in entrants]


def _rows(series: list[Series]) -> list[list[str]]:
    rows = []
    for one in series:
        ratio = ratio_of(series, "plain", ours=ON, nbytes=one.nbytes) if one.peer == ON else None
        size = format_bytes(one.nbytes) if one.peer != ON else ""
        cost = f"{sum(one.cpu_s_per_gb()):.2f}"
        rows.append([size, one.peer, *time_cells(one), cost, f"{ratio} as fast" if ratio else ""])
    return rows


def _verdicts(series: list[Series], title: str, per_byte: list[float]) -> list[Verdict]:
    found = {one.peer: one for one in series if one.nbytes == GOAL_BYTES}
    if len(found) < 2:
        return []
    subject = f"{format_bytes(GOAL_BYTES)}, {title}, encrypted"
    plain, sealed = found["plain"], found[ON]
    cores = len(os.sched_getaffinity(0))
    cipher_s = 2 * plain.workers * plain.nbytes * quantile(per_byte, 0.5) / cores
    pairs = zip(plain.samples_s, sealed.samples_s, strict=True)
    of_bound = Ratio.of([(clear + cipher_s) / shut for clear, shut in pairs])
    of_plain = ratio_of(series, "plain", ours=ON, nbytes=GOAL_BYTES)
    return [
        judge(Goal(subject, "{:.2f} of plain", GOAL_OF_PLAIN), of_plain),
        judge(Goal(subject, "{:.2f} of plain and cipher one after the other", GOAL_OF_BOUND), of_bound),
    ]
