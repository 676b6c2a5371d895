"""One row of the table of environment variables: what is known of a variable, and how a value is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from byteps.config.parsers import Parser

T = TypeVar("T")

IN_FORCE = "in force"
NOT_YET = "not yet in force"  # parsed and checked, but nothing acts on it in this version
SUPERSEDED = "superseded"  # of the original: what it tuned is decided elsewhere, as its meaning says
PRIVATE = "private"  # set by this project's own programs, not by people

_KEY = "variable"


@dataclass(frozen=True)
class Variable:
    """One row, as documents and tools see it."""

    name: str
    attribute: str
    parser: Parser[Any]
    default: Callable[[], Any]
    default_text: str  # as documents say it: does not depend on the machine
    meaning: str
    group: str
    status: str
    aliases: tuple[str, ...]
    secret: bool  # the value is never shown


def row(
    name: str,
    parser: Parser[T],
    default: T | Callable[[], T],
    meaning: str,
    *,
    status: str = IN_FORCE,
    default_text: str | None = None,
    aliases: tuple[str, ...] = (),
    secret: bool = False,
) -> T:
    """Declare a variable in a dataclass: a field, typed T so that mypy compares it with the attribute."""
    factory: Callable[[], T] = default if callable(default) else lambda: default
    facts = {
        "name": name,
        "parser": parser,
        "default": factory,
        "default_text": show(default) if default_text is None else default_text,
        "meaning": meaning,
        "status": status,
        "aliases": aliases,
        "secret": secret,
    }
    return dataclasses.field(default_factory=factory, metadata={_KEY: facts}, repr=not secret)


def rows(group: str, table: type[Any]) -> dict[str, Variable]:
    """The variables that a dataclass declares, by name, in their order."""
    facts = ((field.name, field.metadata[_KEY]) for field in dataclasses.fields(table))
    return {fact["name"]: Variable(attribute=attribute, group=group, **fact) for attribute, fact in facts}


def show(value: object) -> str:
    """A value as it would be written in the environment; "-" for one that is not there."""
    if value is None or value in ("", (), b""):
        return "-"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, range):
        return str(value[0]) if len(value) == 1 else f"{value[0]}-{value[-1]}"
    if isinstance(value, tuple):
        separator = ":" if isinstance(value[0], tuple) else ","
        return separator.join(show(item) for item in value)
    return str(value)
