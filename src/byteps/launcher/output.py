"""Output of several processes on one screen: whole lines with a label, and a progress display that stays put.

Pure: bytes in, bytes out. A line is printed when it is complete. What follows the last carriage return is
what a terminal would show of it: a file gets the last state of a progress bar, not its thousand earlier ones.
On a terminal the unfinished line of one process (worker 0 if it has one) is shown at the bottom as it grows:
erased before a line of another process is printed, and drawn again below it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["TAIL_LINES", "Lines", "Screen", "Style", "clip"]

TAIL_LINES = 20
MAX_LINE_BYTES = 1 << 16  # a longer line is cut: a process that never ends a line must not fill memory

_ERASE = b"\r\x1b[K"
_RESET = b"\x1b[0m"
_COLOURS = (36, 32, 33, 34, 35, 96, 92, 93, 94, 95)
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Lines:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self.partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, as a terminal would finally show them."""
        *whole, rest = (self.partial + data).split(b"\n")
        lines = [_visible(line) for line in whole]
        while len(rest) > MAX_LINE_BYTES and b"\r" not in rest:
            lines.append(rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        # A carriage return at the end only moves the cursor: the text stays until the next byte comes.
        self.partial = _visible(rest) + b"\r" if rest.endswith(b"\r") else _visible(rest)
        return lines

    @property
    def shown(self) -> bytes:
        """What a terminal shows of the unfinished line."""
        return _visible(self.partial)

    def close(self) -> list[bytes]:
        """The stream has ended: its last line, if it was not ended."""
        last, self.partial = self.shown, b""
        return [last] if last.strip() else []


def _visible(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


@dataclass(frozen=True)
class Style:
    """What the destination can do."""

    colour: bool = False
    columns: Callable[[], int] | None = None  # width of the terminal, None: not a terminal, only whole lines


class Screen:
    """One destination (standard output, standard error, or both when they are the same file)."""

    def __init__(
        self, names: Sequence[str], order: Sequence[int], tails: Sequence[deque[bytes]], style: Style
    ) -> None:
        """``order``: who may show an unfinished line, first choice first. ``tails`` get every whole line."""
        self._labels = [_label(name, place, style) for place, name in enumerate(names)]
        self._order = order
        self._tails = tails
        self._style = style
        self._lines = [Lines() for _ in names]
        self._drawn = b""  # the unfinished line that is on the screen now

    def feed(self, process: int, data: bytes) -> bytes:
        """What to write when a process has written ``data``."""
        return self._print(process, self._lines[process].feed(data))

    def close(self, process: int) -> bytes:
        """What to write when a process will write no more."""
        return self._print(process, self._lines[process].close())

    def note(self, text: str) -> bytes:
        """What to write for a line of the launcher itself."""
        return self._draw([f"{line}\n".encode() for line in text.splitlines()])

    def tail(self, process: int) -> bytes:
        """The last lines of a process once more."""
        return self._draw([self._labelled(process, line) for line in self._tails[process]])

    def _print(self, process: int, lines: list[bytes]) -> bytes:
        self._tails[process].extend(lines)
        return self._draw([self._labelled(process, line) for line in lines])

    def _labelled(self, process: int, line: bytes) -> bytes:
        closing = _RESET if self._style.colour and b"\x1b" in line else b""
        return self._labels[process] + line + closing + b"\n"

    def _draw(self, lines: list[bytes]) -> bytes:
        """Whole lines above, the unfinished line below."""
        if self._style.columns is None:
            return b"".join(lines)
        drawn = self._unfinished(self._style.columns())
        if not lines and drawn == self._drawn:
            return b""
        erase = _ERASE if self._drawn else b""
        self._drawn = drawn
        return erase + b"".join(lines) + drawn

    def _unfinished(self, columns: int) -> bytes:
        for process in self._order:
            shown = self._lines[process].shown
            if shown.strip():
                return clip(self._labels[process] + shown, columns - 1)
        return b""


def clip(line: bytes, columns: int) -> bytes:
    """As much of a line as fits: a line that wraps cannot be erased. Colours take no room."""
    text = line.decode(errors="replace")
    out, room, position = [], columns, 0
    for match in _ESCAPE.finditer(text):
        out += [text[position : match.start()][:room], match.group()]
        room = max(0, room - (match.start() - position))
        position = match.end()
    out.append(text[position:][:room])
    return "".join(out).encode()


def _label(name: str, place: int, style: Style) -> bytes:
    if not style.colour:
        return f"[{name}] ".encode()
    return f"\x1b[{_COLOURS[place % len(_COLOURS)]}m[{name}]\x1b[0m ".encode()
