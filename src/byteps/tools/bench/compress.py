"""``bps bench compress``: how fast are the codecs, beside a copy of memory, PyTorch and NumPy?"""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import asdict
from pathlib import Path
from typing import Any

from byteps.errors import ConfigError
from byteps.tensor.tuning import USUAL_BYTES
from byteps.tools.arguments import positive, size
from byteps.tools.bench import compress_goals, report
from byteps.tools.bench.compress_cases import Case, cases
from byteps.tools.bench.compress_goals import LIBRARIES, MEMCPY
from byteps.tools.bench.compress_plot import draw_codecs
from byteps.tools.bench.interleave import interleave
from byteps.tools.bench.local_goals import HEADER, row, verdicts
from byteps.tools.bench.machine import busy
from byteps.tools.bench.screen import say, table
from byteps.tools.bench.series import Sample, Series
from byteps.tools.units import format_time

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Measure every codec on one partition of float32 with one thread: compress, decode, decode and add, and
compress with error feedback. Beside it in the same run: memcpy of the same bytes, and what PyTorch and NumPy
take for the same arithmetic. All take turns on the same set of partitions, which together are larger than
caches. Speeds are of uncompressed bytes, times are CPU times. Every payload is decoded and compared with its
gradient before anything is measured."""

_EPILOG = """\
examples:
  bps bench compress
  bps bench compress --only onebit,memcpy          what has one of these in its name
  bps bench compress --partition-bytes 1M --repeats 50"""


def add_parser(subparsers: Any) -> None:
    """Add ``compress`` to the parser of ``bps bench``."""
    parser = subparsers.add_parser(
        "compress",
        help="the codecs of gradient compression, beside memcpy, PyTorch and NumPy",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--partition-bytes", type=size, default=USUAL_BYTES, metavar="SIZE", help="(%(default)s)")
    add("--partitions", type=positive, default=8, metavar="N", help="that take turns (%(default)s)")
    add("--only", default="", metavar="NAMES", help="measure what has one of these in its name (all)")
    add("--repeats", type=positive, default=31, metavar="N", help="repetitions (%(default)s)")
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write files; the status is 0 whatever the goals say, unless --check was given."""
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("bps bench compress needs PyTorch, to compare with: pip install torch")
    if remark := busy():
        say(remark)
    chosen = {
        case.name: case
        for case in cases(args.partition_bytes // 4, args.partitions)
        if not args.only or any(part.strip() in case.name for part in args.only.split(","))
    }
    series = [Series(name, 1, 0, args.partition_bytes, case.inner) for name, case in chosen.items()]
    interleave("codecs", [series], lambda one, inner: _measure(chosen[one.peer], inner), args.repeats)
    table("codecs, one thread", _HEADER, _rows(series, chosen))
    lines = compress_goals.lines(series)
    table("ratios of speed, and the goals", HEADER, [row(line) for line in lines])
    path = args.output / "compress.json"
    for one in series:
        one.notes["payload_bytes"] = chosen[one.peer].payload_bytes
    ratios = [{"what": line.what, "beside": line.beside, **asdict(line.ratio)} for line in lines]
    settings = {**vars(args), "output": str(args.output)}
    report.write(path, "compress", settings, series, verdicts(lines), {"ratios": ratios})
    picture = draw_codecs(path.with_suffix(".png"), series)
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
    return 1 if args.check and not all(verdict.reached for verdict in verdicts(lines)) else 0


def _measure(case: Case, inner: int) -> Sample:
    time_s = case.timed_s(inner) / inner
    return Sample(time_s, time_s)


_HEADER = ("what", "time", "spread", "GB/s", "of memcpy", *(f"{name} GB/s" for name in LIBRARIES), "bytes")


def _rows(series: list[Series], chosen: dict[str, Case]) -> list[list[str]]:
    """Our cases with what others take for the same beside them; memcpy first."""
    by_name = {one.peer: one for one in series}
    memcpy = _speed(by_name.get(MEMCPY))
    found = []
    for name in [*([MEMCPY] if MEMCPY in by_name else []), *compress_goals.ours(series)]:
        one, payload = by_name[name], chosen[name].payload_bytes
        summary = one.summary()
        others = [_speed(by_name.get(compress_goals.beside(library, name))) for library in LIBRARIES]
        found.append(
            [
                name,
                format_time(summary.median),
                f"±{(summary.q3 - summary.q1) / 2 / summary.median:.0%}",
                f"{_speed(one):.2f}",
                f"{_speed(one) / memcpy:.2f}" if memcpy else "",
                *(f"{speed:.2f}" if speed else "" for speed in others),
                f"{payload:,}" if payload else "",
            ]
        )
    return found


def _speed(one: Series | None) -> float:
    """GB/s of uncompressed bytes; 0 for what was not measured."""
    return 0.0 if one is None else one.algorithm_bytes_per_s() / 1e9
