"""What CONTRIBUTING.md says of unit tests is true: they open no socket and sleep nowhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("*.py"))


def wrong_in(source: str) -> list[str]:
    """Imports of ``socket``, and calls of anything called ``sleep``, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            names = [getattr(node.func, "attr", getattr(node.func, "id", ""))]
        else:
            continue
        found += [f"{name} in line {node.lineno}" for name in names if name in ("socket", "sleep")]
    return found


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_it_has_neither_sockets_nor_sleep(file: Path) -> None:
    assert wrong_in(file.read_text()) == []


def test_both_would_be_found() -> None:
    assert wrong_in("import socket") and wrong_in("from socket import create_server")
    assert wrong_in("time.sleep(1)") and wrong_in("sleep(1)") and not wrong_in("asleep(1)")
