"""What the benchmarks of this folder share: their options and links, their workers' environment, their end.

None sets a variable of ours beyond who is in the job: what they measure is what a user gets. What is set in
the shell is used, and the result file lists it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from byteps.tools.arguments import positive
from byteps.tools.bench import report
from byteps.tools.bench.machine import busy, processor_time
from byteps.tools.bench.screen import say
from byteps.tools.bench.series import Series
from byteps.tools.bench.stats import Ratio, Verdict
from byteps.tools.lab import Wire
from byteps.tools.lab.network import why_not

__all__ = ["ETHERNET", "arguments", "environment", "finish", "parser", "told"]

HERE = Path(__file__).parent
ETHERNET = Wire(mtu=1500, queue_ms=40)  # ordinary frames, and a switch that holds what many switches do
STOLEN_WORTH_TELLING = 0.02
_BEGUN = processor_time()


def parser(doc: str | None, repeats: int) -> argparse.ArgumentParser:
    """A parser with the options that all of them have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = made.add_argument
    add("--repeats", type=positive, default=None, metavar="N", help=f"repetitions ({repeats})")
    add("--tiny", action="store_true", help="few bytes and rounds: a check that it runs, not a measurement")
    add("--output", type=Path, default=Path("bench-results"), metavar="DIR", help="folder (%(default)s)")
    add("--figures", type=Path, metavar="DIR", help="put the figure here too, for the documentation")
    add("--check", action="store_true", help="end with status 1 when a goal is not reached")
    made.set_defaults(usual_repeats=repeats)
    return made


def arguments(made: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, once it is clear that a lab can be built here."""
    args = made.parse_args()
    args.repeats = args.repeats or (2 if args.tiny else args.usual_repeats)
    del args.usual_repeats
    args.load_at_start = list(os.getloadavg())
    if reason := why_not():
        made.exit(2, f"{made.prog}: error: {reason}\n")
    if remark := busy():
        say(remark)
    return args


def environment(**variables: object) -> dict[str, str]:
    """Settings of a cluster whose workers can import the modules of this folder."""
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, **{name: str(value) for name, value in variables.items()}}


def told(ratio: Ratio | None, text: str = "{} x") -> str:
    """A ratio for a table, with its quartiles; none is told when the spread is larger than the difference.

    >>> told(Ratio(1.5, 1.4, 1.6)), told(Ratio(1.02, 0.9, 1.1))
    ('1.50 [1.40 to 1.60] x', 'no difference [0.90 to 1.10]')
    """
    if ratio is None:
        return ""
    return text.format(ratio) if ratio.differs() else f"no difference [{ratio.q1:.2f} to {ratio.q3:.2f}]"


def finish(
    args: argparse.Namespace,
    name: str,
    series: Sequence[Series],
    verdicts: Sequence[Verdict],
    draw: Callable[[Path], Path | None],
    extra: dict[str, Any] | None = None,
) -> int:
    """Write the result file and the figure, say what became of the goals; the status of the program."""
    path = args.output / f"lab-{name}.json"
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    stolen = processor_time().stolen_since(_BEGUN)
    settings["stolen"] = round(stolen, 4)
    report.write(path, f"lab-{name}", settings, series, verdicts, extra)
    picture = draw(path.with_suffix(".png"))
    if picture and args.figures:
        args.figures.mkdir(parents=True, exist_ok=True)
        (args.figures / f"{name}.png").write_bytes(picture.read_bytes())
    for verdict in verdicts:
        say(verdict.line())
    if stolen > STOLEN_WORTH_TELLING:
        say(f"other machines took {stolen:.0%} of this one's processors meanwhile: figures suffer by as much")
    say(f"all samples: {path}" + (f", plot: {picture}" if picture else ""))
    sys.stdout.flush()
    return 1 if args.check and not all(verdict.reached for verdict in verdicts) else 0
