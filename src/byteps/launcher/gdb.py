"""BYTEPS_ENABLE_GDB=1: a worker's command under gdb, which prints where every thread was when it crashed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from byteps.errors import ConfigError
from byteps.launcher.spec import ProcessSpec

__all__ = ["interpreter", "wrapped"]

SCRIPT = Path(__file__).with_name("crash.gdb")
_BEFORE_LOADING = ("set auto-load python-scripts off",)  # else it warns of each one
_LONGEST_LINE_BYTES = 512
Which = Callable[[str, str | None], str | None]


def _which(name: str, path: str | None) -> str | None:
    return shutil.which(name, path=path)


def wrapped(spec: ProcessSpec, inherited: Mapping[str, str], which: Which = _which) -> ProcessSpec:
    """The same process under gdb. Its exit code stays what it was, 128+n for signal n.

    Python's own fault handler is switched on, too: gdb shows frames of C, it shows those of Python.
    """
    environment = spec.environment(inherited)
    path = environment.get("PATH")
    gdb = which("gdb", path)
    if gdb is None:
        raise ConfigError(
            "BYTEPS_ENABLE_GDB=1 needs gdb, which is not on PATH; install the package gdb "
            "(apt-get install gdb, dnf install gdb), or unset it"
        )
    program = which(spec.argv[0], path)
    if program is None:
        return spec  # starting it fails, with a better message than gdb has
    argv = (*interpreter(Path(program)), program, *spec.argv[1:])
    # gdb starts the command through $SHELL, which may be one that it does not know how to quote for. The
    # command itself sees what it would see without gdb.
    own = environment.get("SHELL")
    shell = "unset environment SHELL" if own is None else f"set environment SHELL {own}"
    before = (arg for text in (*_BEFORE_LOADING, shell) for arg in ("--init-eval-command", text))
    options = ("--quiet", "--batch", "--nx", *before, "--command", str(SCRIPT), "--args")
    env = {"PYTHONFAULTHANDLER": "1", **spec.env, "SHELL": "/bin/sh"}
    return replace(spec, argv=(gdb, *options, *argv), env=env, debugged=True)


def interpreter(program: Path) -> tuple[str, ...]:
    """What runs a script, by its first line; nothing for a binary. gdb runs binaries only."""
    try:
        with program.open("rb") as file:
            line = file.readline(_LONGEST_LINE_BYTES)
    except OSError:
        return ()
    if not line.startswith(b"#!"):
        return ()
    words = line[2:].decode(errors="surrogateescape").strip().split(None, 1)  # as the kernel: one argument
    return tuple(words)
