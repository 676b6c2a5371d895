"""Folders look into each other one way only, in both languages: ``directions.py`` says which way."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from directions import NATIVE, PYTHON, Table
from looks import ROOT, Seen, native_looks, python_looks

TABLES = {"python": (PYTHON, python_looks), "native": (NATIVE, native_looks)}


def forbidden(table: Table, seen: Iterable[Seen]) -> list[str]:
    """A sentence for every look that the table does not have."""
    return [
        f"{source} may not look into {target}: {where}"
        for source, target, where in seen
        if target not in table.get(source, set())
    ]


def circle(table: Table) -> list[str]:
    """Folders that look into each other in a circle, the first again at the end; empty without one."""
    finished: set[str] = set()

    def walk(folder: str, way: list[str]) -> list[str]:
        if folder in way:
            return [*way[way.index(folder) :], folder]
        if folder not in finished:
            for target in sorted(table.get(folder, ())):
                if found := walk(target, [*way, folder]):
                    return found
            finished.add(folder)
        return []

    return next((found for folder in table if (found := walk(folder, []))), [])


def unused(table: Table, seen: Iterable[Seen]) -> list[tuple[str, str]]:
    """The lines of the table that nothing needs."""
    used = {(source, target) for source, target, _ in seen}
    return [
        (source, target)
        for source in table
        for target in sorted(table[source] - {t for s, t in used if s == source})
    ]


@pytest.mark.parametrize("language", TABLES)
def test_nobody_looks_where_the_table_does_not_allow_it(language: str) -> None:
    table, looks = TABLES[language]
    found = forbidden(table, looks())
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("language", TABLES)
def test_the_table_has_no_circle(language: str) -> None:
    table, _ = TABLES[language]
    assert not circle(table), " looks into ".join(circle(table))


@pytest.mark.parametrize("language", TABLES)
def test_the_table_has_no_line_that_nothing_uses(language: str) -> None:
    table, looks = TABLES[language]
    assert unused(table, looks()) == []


@pytest.mark.parametrize("language", TABLES)
def test_every_folder_that_a_row_names_has_a_row(language: str) -> None:
    table, _ = TABLES[language]
    assert {target for targets in table.values() for target in targets} - set(table) == set()


def test_the_document_draws_every_folder() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Directions", 1)[1].split("\n## ", 1)[0]
    words = set(re.findall(r"[\w./]+", section))
    assert {folder for table in (PYTHON, NATIVE) for folder in table} - words == set()


# ---- the reader itself ----


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_it_sees_imports_wherever_they_stand(tmp_path: Path) -> None:
    package = write(
        tmp_path / "p",
        {
            "__init__.py": "from p.a import x\n",
            "errors.py": "",
            "a/__init__.py": "import p.a.inner.z\n",  # the face of its own folder
            "a/x.py": "import os\nfrom p import errors\nfrom p.b.y import name\nimport p.a.w\n",
            "a/w.py": "def f():\n    from p import b\n",
            "a/inner/z.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p\n",
            "b/y.py": "name = 1\n",
        },
    )
    assert list(python_looks(package)) == [
        ("p", "a", "p/__init__.py:1"),
        ("a.inner", "p", "p/a/inner/z.py:3"),
        ("a", "b", "p/a/w.py:2"),
        ("a", "errors", "p/a/x.py:2"),
        ("a", "b", "p/a/x.py:3"),
    ]


def test_it_sees_includes(tmp_path: Path) -> None:
    native = write(
        tmp_path / "native",
        {
            "a/x.h": '#include <vector>\n#include "a/y.h"\n#include "b/z.h"\n',
            "a/y.h": "",
            "b/z.h": '  #  include "b/tcp/t.h"  // why\n#include "nobody/n.h"\n',
            "b/tcp/t.h": "",
            "tests/test_x.cc": '#include "a/x.h"\n',
        },
    )
    assert list(native_looks(native)) == [("a", "b", "native/a/x.h:3"), ("b", "b/tcp", "native/b/z.h:1")]


def test_what_it_says() -> None:
    table = {"a": {"b"}, "b": {"c"}, "c": set()}
    seen = [Seen("a", "b", "a/x.py:1"), Seen("c", "a", "c/y.py:2"), Seen("d", "c", "d/z.py:3")]
    assert forbidden(table, seen) == [
        "c may not look into a: c/y.py:2",
        "d may not look into c: d/z.py:3",
    ]
    assert unused(table, seen) == [("b", "c")]
    assert circle(table) == []
    assert circle(table | {"c": {"a"}}) == ["a", "b", "c", "a"]
