"""``bps bench``: one module per question, each measuring this project beside its peers and beside a bound.

A question is a module with ``add_parser(subparsers)`` and ``run(args) -> int``; it is entered in QUESTIONS.
What questions share: ``stats`` (medians, ratios, goals), ``members`` and ``member`` (processes that are told
step by step what to measure), ``report`` (JSON), ``screen`` (table, progress) and ``plot`` (PNG).
What each number means is written in benchmarks/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

__all__ = ["QUESTIONS", "add_parser", "run"]

QUESTIONS = {
    "push-pull": "byteps.tools.bench.push_pull",
    "local": "byteps.tools.bench.local",
    "compress": "byteps.tools.bench.compress",
    "startup": "byteps.tools.bench.startup",
}

_DESCRIPTION = """\
Measure this project beside its peers and beside a bound, interleaved in one run. Prints a table, writes JSON
with all samples and, where matplotlib is installed, a plot."""


def add_parser(subparsers: Any) -> None:
    """Add ``bench`` to the parser of ``bps``."""
    parser = subparsers.add_parser(
        "bench", help="measure this project beside its peers and beside a bound", description=_DESCRIPTION
    )
    questions = parser.add_subparsers(dest="question", metavar="QUESTION", title="questions", required=True)
    for module in QUESTIONS.values():
        importlib.import_module(module).add_parser(questions)


def run(args: argparse.Namespace) -> int:
    """Run one question. The exit status is 0 even when a goal is not reached, unless --check was given."""
    status: int = importlib.import_module(QUESTIONS[args.question]).run(args)
    return status
