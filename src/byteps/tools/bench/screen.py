"""What a person sees while a benchmark runs and when it ends; with rich where it is installed, else plain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

__all__ = ["progress", "say", "table"]

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ImportError:
    HAVE_RICH = False
else:
    HAVE_RICH = True


def say(text: str) -> None:
    print(text, flush=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yields a function to call before each step with what it does. Drawn on a terminal only."""
    if HAVE_RICH and sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=total)

            def draw(step: str) -> None:
                bar.update(task, advance=1, description=f"{title}: {step}")

            yield draw
        return
    print(f"{title} ...", file=sys.stderr, flush=True)
    yield lambda step: None


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; the first column is text, the others are numbers. A row with an empty first cell continues."""
    if HAVE_RICH:
        drawn = Table(title=title, title_justify="left")
        for index, name in enumerate(header):
            drawn.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
        grouped = any(row[0] == "" for row in rows)
        for row in rows:
            if grouped and row[0]:
                drawn.add_section()
            drawn.add_row(*row)
        # A pipe has no width: do not fold lines that a program or a log will read.
        Console(width=None if sys.stdout.isatty() else 180).print(drawn)
        return
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    say(title)
    for line in (header, *rows):
        cells = [line[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)
        ]
        say("  ".join(cells))
