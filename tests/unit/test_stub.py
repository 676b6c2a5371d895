"""``_core.pyi`` says what the compiled module has: the same names, parameters, kinds and defaults.

nanobind writes a stub of the compiled module; both are read as syntax. Types may be narrower in ours, since
nanobind knows a tuple and we know what is in it; so types are compared by their outermost name only.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import byteps
from byteps import _core

stubgen = pytest.importorskip("nanobind.stubgen")

SAME = {"Literal": "str", "Sequence": "list", "Iterable": "list", "Mapping": "dict"}  # either name


def surface(tree: ast.Module | ast.ClassDef) -> dict[str, str]:
    """Every public name with what can be compared of it."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name == "__init__"):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if "property" in decorators:
                found[node.name] = f"only read: {_outer(node.returns)}"
            elif f"{node.name}.setter" in decorators:
                found[node.name] = found[node.name].removeprefix("only read: ")
            else:
                found[node.name] = _signature(node)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = "class"
            found |= {f"{node.name}.{name}": what for name, what in surface(node).items()}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = _outer(node.annotation)
    return found


def _signature(node: ast.FunctionDef) -> str:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [_parameter(each, default) for each, default in zip(positional, defaults, strict=True)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs += ["*", *(_parameter(each, default) for each, default in named)] if arguments.kwonlyargs else []
    return f"({', '.join(pairs)})"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    return one.arg if default is None else f"{one.arg}={ast.unparse(default)}"


def _outer(node: ast.expr | None) -> str:
    if node is None:
        return ""
    if isinstance(node, ast.Subscript):
        return _outer(node.value)
    text = ast.unparse(node).rpartition(".")[2]
    return SAME.get(text, text)


def _is(compiled: str, ours: str) -> bool:
    pairs = list(zip(compiled.split(", "), ours.split(", "), strict=False))
    same = all(
        one == other or other.partition("=")[::2] == (one.partition("=")[0], "...") for one, other in pairs
    )
    return same and compiled.count(", ") == ours.count(", ")


def test_the_stub_says_what_the_module_has() -> None:
    generator = stubgen.StubGen(_core)
    generator.put(_core)
    compiled = surface(ast.parse(generator.get()))
    ours = surface(ast.parse((Path(byteps.__file__).parent / "_core.pyi").read_text()))
    ours.pop("OpError.args", None)  # of every exception
    # "..." stands for a default that has a name in the core.
    differs = {name: what for name, what in compiled.items() if not _is(what, ours.get(name, ""))}
    assert differs == {name: ours.get(name) for name in differs}
    assert sorted(ours.keys() - compiled.keys()) == []
