"""docs/configuration.md is exactly what the table makes."""

from __future__ import annotations

from pathlib import Path

from byteps.config import VARIABLES
from byteps.tools.env_markdown import markdown

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(VARIABLES.values()), "run `make docs`"


def test_the_page_lists_every_name_once() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for variable in VARIABLES.values():
        for name in (variable.name, *variable.aliases):
            assert (
                sum(f"`{name}`" in line.split("|")[1] for line in text.splitlines() if line[:3] == "| `") == 1
            )
