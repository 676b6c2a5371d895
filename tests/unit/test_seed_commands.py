"""examples/reproduce/COMMANDS.md: what it says of each command of BytePS's documents is so here."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from byteps.config import table as config_table
from byteps.launcher.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "examples" / "reproduce" / "COMMANDS.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| `")
]
CODE = re.compile(r"`([^`]+)`")


def commands(cell: str) -> list[str]:
    return CODE.findall(cell)


def options_of(script: Path) -> set[str]:
    """What the parser of a script takes, read and not run: its framework may not be here."""
    found = set()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "add":
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


WITH_OPTIONS = [(there, here) for there, here in ROWS if "examples/mxnet" in here]
NAME = re.compile(r"\b((?:DMLC|BYTEPS|PS)_\w+)")
VARIABLES = sorted({name for row in ROWS for name in NAME.findall(" ".join(row))})
ENDS = ("bpslaunch", "YOUR_COMMAND")
LINES = [line for there, _ in ROWS for line in commands(there) if line.endswith(ENDS)]


def test_the_page_has_all_five_documents() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert headings == ["Front page", "Running", "Variables", "Gradient compression", "Reproduction guide"]
    assert len(WITH_OPTIONS) == 10 and len(LINES) == 4 and len(VARIABLES) == 25


@pytest.mark.parametrize(("there", "here"), WITH_OPTIONS)
def test_the_script_takes_every_option(there: str, here: str) -> None:
    script = ROOT / next(word for word in shlex.split(commands(here)[0]) if word.endswith(".py"))
    given = {word.partition("=")[0] for word in shlex.split(commands(there)[0]) if word.startswith("-")}
    assert given <= options_of(script), given - options_of(script)


@pytest.mark.parametrize("name", VARIABLES)
def test_every_variable_is_known(name: str) -> None:
    known = Path(config_table.__file__).read_text()
    assert f'"{name}"' in known


@pytest.mark.parametrize("line", LINES)
def test_every_launch_is_understood(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line.replace("YOUR_COMMAND", "python train.py"))
    start = words.index("bpslaunch")
    for word in words[:start]:
        monkeypatch.setenv(*word.split("=", 1))
    assert main(["--dry-run", *words[start + 1 :]]) == 0
    role = dict(word.split("=", 1) for word in words[:start])["DMLC_ROLE"]
    assert role in capsys.readouterr().out


def test_every_file_that_is_named_is_there() -> None:
    for _, here in ROWS:
        for word in (word for command in commands(here) for word in shlex.split(command)):
            if word.startswith(("examples/", "docker/")):
                assert (ROOT / word).exists(), word
    for name in ("run.sh", "scheduler.sh", "server.sh", "worker.sh", "README.md"):
        assert (ROOT / "examples" / "reproduce" / name).exists()
