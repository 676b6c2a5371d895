"""Reads who looks into whom: the imports of ``src/byteps``, with ``ast``, and the includes of ``native``.

Every import statement counts, also one inside a function or under TYPE_CHECKING: an import that is deferred
hides a circle and does not break it, and a type that two folders need belongs to one that both may see. What
is loaded by its name in a string (a subcommand, a module of the user's, ``python -m``) does not count. Nor
does what the ``__init__.py`` of a folder imports from folders inside it: it is their face.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


class Seen(NamedTuple):
    """One import or include that crosses the border of a folder."""

    source: str
    target: str
    where: str  # file and line


def python_looks(package: Path = ROOT / "src/byteps") -> Iterator[Seen]:
    """Every look between folders below a package."""
    for file in sorted(package.rglob("*.py")):
        own = _folder(package, _parts(package, file))
        face_of = own if file.name == "__init__.py" and file.parent != package else None
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            for parts in _imported(package, node):
                target = _folder(package, parts)
                inside = face_of is not None and target.startswith(f"{face_of}.")
                if target != own and not inside:
                    yield Seen(own, target, f"{file.relative_to(package.parent)}:{node.lineno}")  # type: ignore[attr-defined]


def native_looks(folder: Path = ROOT / "native") -> Iterator[Seen]:
    """Every look between folders of headers and sources; those of the tests are left out."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".h", ".cc", ".inc")):
        own = file.parent.relative_to(folder).as_posix()
        if own.split("/")[0] == "tests":
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found = _INCLUDE.match(line)
            if found is not None and (folder / found[1]).is_file():
                target = Path(found[1]).parent.as_posix()
                if target != own:
                    yield Seen(own, target, f"{file.relative_to(folder.parent)}:{number}")


def _parts(package: Path, file: Path) -> tuple[str, ...]:
    return (package.name, *file.relative_to(package).with_suffix("").parts)


def _imported(package: Path, node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The modules of the package that a statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "imports of this project are absolute"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return
    for name in names:
        parts = tuple(name.split("."))
        if parts[0] == package.name:
            yield parts if _is_module(package, parts) else parts[:-1]


def _is_module(package: Path, parts: tuple[str, ...]) -> bool:
    path = package.joinpath(*parts[1:])
    return path.is_dir() or any(path.with_suffix(suffix).is_file() for suffix in (".py", ".pyi"))


def _folder(package: Path, parts: tuple[str, ...]) -> str:
    """The folder of a module; of those beside the package's ``__init__.py``, the module itself."""
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if not package.joinpath(*parts[1:]).is_dir():
        parts = parts if len(parts) == 2 else parts[:-1]
    return ".".join(parts[1:]) or package.name
