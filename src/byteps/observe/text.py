"""Text that somebody else wrote, made fit for a log, an exception or a terminal.

A peer, a stranger or a program on another host may send escape codes that repaint a terminal, line ends that
look like lines of our own log, or a megabyte. Text is cleaned once, where it comes in; whoever shows it later
need not think of it. What is compared (a tensor's name, a job id) stays as it is, and is shown with ``!r``.
"""

from __future__ import annotations

import re

__all__ = ["MAX_CHARACTERS", "clean"]

MAX_CHARACTERS = 4_096
_LINE_END = re.compile(r"\s*[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]\s*")


def clean(text: str, most: int = MAX_CHARACTERS) -> str:
    r"""One line without anything that a terminal obeys; cleaning it again changes nothing.

    >>> print(clean("\x1b[2Jit ended:\n  no space"))
    \x1b[2Jit ended: no space
    """
    if text.isprintable() and len(text) <= most:
        return text
    shown = _LINE_END.sub(" ", text[: most + 1])  # before it grows: a cut must not depend on what is escaped
    shown = "".join(each if each.isprintable() else _escaped(each) for each in shown)
    return shown if len(shown) <= most and len(text) <= most else f"{shown[: most - 3]}..."


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
