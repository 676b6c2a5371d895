"""The page ``docs/configuration.md``, made from the table of variables: ``bps env --markdown``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from byteps.config.row import IN_FORCE, NOT_YET, PRIVATE, SUPERSEDED, Variable

_INTRODUCTION = f"""\
# Configuration

<!-- Made by `make docs` from src/byteps/config/table.py. Edit that file, not this one; a test compares. -->

Everything is set with environment variables. They are read once, when a process of the job starts.
`bps env` prints this table with the values in force in your shell, and says what is wrong with them.

- A value that does not parse is an error that names the variable, the value and what is valid.
- An empty value counts as unset. Switches take 0 or 1 (also false, true, no, yes, off, on).
- A `BYTEPS_*` or `DMLC_*` name that nobody knows is a warning with the nearest known name.
- Variables that contradict each other are an error that names both and the remedy.

What the column *status* says:

- **{IN_FORCE}**: this version acts on it.
- **{NOT_YET}**: read and checked, but without effect in this version; a warning says so when it is set.
- **{SUPERSEDED}**: known from the original, checked and then without effect; its meaning says why.
- **{PRIVATE}**: set by the project's own programs, listed so that you know what it is.
"""


_HEAD = "| variable | default | valid | status | meaning |\n|---|---|---|---|---|"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _name(variable: Variable) -> str:
    also = "".join(f" (also `{alias}`)" for alias in variable.aliases)
    return f"`{variable.name}`{also}"


def _row(variable: Variable) -> str:
    cells = (
        _name(variable),
        variable.default_text,
        variable.parser.valid,
        variable.status,
        variable.meaning,
    )
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def markdown(variables: Iterable[Variable]) -> str:
    """The whole page, with a table per group. The same on every machine."""
    parts = [_INTRODUCTION]
    for group, members in groupby(variables, key=lambda variable: variable.group):
        rows = "\n".join(_row(variable) for variable in members)
        parts.append(f"\n## {group}\n\n{_HEAD}\n{rows}\n")
    return "".join(parts)
