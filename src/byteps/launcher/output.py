"""Output of several processes on one screen: whole lines with a label, and a progress display that stays put.

Pure: bytes in, bytes out. A line is printed when it is complete. What follows the last carriage return is
what a terminal would show of it: a file gets the last state of a progress bar, not its thousand earlier ones.
On a terminal the unfinished lines of one process (worker 0 if it has any) are shown at the bottom as they
grow: erased before a line of another process is printed, and drawn again below it. Tracebacks wait
(``aside``).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from byteps.launcher.aside import Aside

__all__ = ["TAIL_LINES", "Lines", "Screen", "Style", "clip"]

TAIL_LINES = 20
IN_VIEW_LINES = 3  # so many of the last lines tell what a process was doing
MAX_ROWS = 40  # of a living display
MAX_LINE_BYTES = 1 << 16  # a longer line is cut: a process that never ends a line must not fill memory

_ERASE = b"\r\x1b[K"
_ERASE_ABOVE = b"\x1b[A\x1b[K"
_RESET = b"\x1b[0m"
_COLOURS = (36, 32, 33, 34, 35, 96, 92, 93, 94, 95)
_MOVES = re.compile(rb"(\n|\r|\x1b\[\d*[ABJK]|\x1b\[\?25[lh])")
_BEGUN = re.compile(rb"\x1b(\[[0-?]*)?$")
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Lines:
    """Cuts a stream of bytes into lines, as far as a terminal would: a living display stays until it is done.

    Programs draw over what they have drawn: a bar returns to the start of its line, a display of several
    lines hides the cursor and moves it up. A line is complete when the cursor cannot come back to it.
    """

    def __init__(self) -> None:
        self.rows: list[bytes] = [b""]  # what is not complete; the cursor is in one of them
        self._row = 0
        self._over = False  # the cursor is at the start of its row: text replaces what is there
        self._height = 1  # as far up as the cursor has ever been moved
        self._hidden = False
        self._cut = b""  # an escape sequence of which the rest has not come

    @property
    def partial(self) -> bytes:
        """The row that is written to."""
        return self.rows[self._row]

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes, as a terminal would finally show them."""
        data = self._cut + data
        begun = _BEGUN.search(data)
        self._cut = begun.group() if begun is not None else b""
        whole: list[bytes] = []
        for part in _MOVES.split(data[: len(data) - len(self._cut)]):
            if part:
                self._take(part, whole)
        return whole

    def _take(self, part: bytes, whole: list[bytes]) -> None:
        if part == b"\n":
            self._down(whole)
        elif part == b"\r":
            self._over = True
        elif not _MOVES.fullmatch(part):
            self._write(part, whole)
        elif part.endswith((b"A", b"B")):
            count = int(part[2:-1] or b"1")
            if part.endswith(b"A"):
                self._height = min(MAX_ROWS, max(self._height, count + 1))
                self._row = max(0, self._row - count)
            else:
                self._row = min(len(self.rows) - 1, self._row + count)
        elif part.endswith(b"K"):
            if self._over or part[2:3] == b"2":
                self.rows[self._row] = b""
        elif part.endswith(b"J"):
            del self.rows[self._row + 1 :]
        else:
            self._hidden = part.endswith(b"l")
            if not self._hidden:
                self._height, self._row = 1, len(self.rows) - 1
                self._let_go(whole)

    def _write(self, text: bytes, whole: list[bytes]) -> None:
        row = text if self._over else self.rows[self._row] + text
        self._over = False
        while len(row) > MAX_LINE_BYTES:
            whole.append(row[:MAX_LINE_BYTES])
            row = row[MAX_LINE_BYTES:]
        self.rows[self._row] = row

    def _down(self, whole: list[bytes]) -> None:
        self._row += 1
        self._over = self._row < len(self.rows)
        if not self._over:
            self.rows.append(b"")
        self._let_go(whole)

    def _let_go(self, whole: list[bytes]) -> None:
        """Rows that the cursor cannot come back to."""
        while self._row and len(self.rows) > (MAX_ROWS if self._hidden else self._height):
            whole.append(self.rows.pop(0))
            self._row -= 1

    @property
    def shown(self) -> bytes:
        """What a terminal shows of the unfinished lines."""
        return b"\n".join(self.rows)

    def close(self) -> list[bytes]:
        """The stream has ended: its last lines, if they were not ended."""
        *rows, last = self.rows
        self.rows, self._row, self._height = [b""], 0, 1
        return [*rows, last] if last.strip() else rows


@dataclass(frozen=True)
class Style:
    """What the destination can do."""

    colour: bool = False
    columns: Callable[[], int] | None = None  # width of the terminal, None: not a terminal, only whole lines
    all_at_once: bool = False  # no line waits


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
        self._aside = [Aside() for _ in names]
        self._drawn = b""  # the unfinished line that is on the screen now
        self._recent: deque[int] = deque(maxlen=TAIL_LINES)  # whose the last lines are, -1: ours

    def columns(self, process: int) -> int:
        """How much of a line of a process fits beside its label; 0: not a terminal."""
        if self._style.columns is None:
            return 0
        return max(20, self._style.columns() - 1 - len(_ESCAPE.sub("", self._labels[process].decode())))

    def feed(self, process: int, data: bytes, now: float = 0.0) -> bytes:
        """What to write when a process has written ``data``."""
        return self._print(process, self._lines[process].feed(data), now)

    def close(self, process: int, now: float = 0.0) -> bytes:
        """What to write when a process will write no more."""
        return self._print(process, self._lines[process].close(), now)

    # ---- lines that wait

    @property
    def waiting(self) -> dict[int, list[bytes]]:
        """The lines that wait, by process."""
        return {place: list(aside.lines) for place, aside in enumerate(self._aside) if aside.lines}

    def waiting_since(self) -> float | None:
        """When the first line that waits came."""
        return min((aside.since for aside in self._aside if aside.lines), default=None)

    def release(self, process: int) -> bytes:
        """What to write when the lines of a process need not wait any more."""
        return self._draw([self._labelled(process, line) for line in self._show(process)])

    def _show(self, process: int) -> list[bytes]:
        lines = self._aside[process].give()
        self._recent.extend([process] * len(lines))
        return lines

    # ---- lines of the launcher

    def note(self, text: str) -> bytes:
        """What to write for a line of the launcher itself."""
        self._recent.append(-1)
        return self._draw([f"{line}\n".encode() for line in text.splitlines()])

    def tail(self, process: int) -> bytes:
        """The last lines of a process once more."""
        return self._draw([self._labelled(process, line) for line in self._tails[process]])

    def in_view(self, process: int) -> bool:
        """Whether the last lines of a process are near the bottom of the screen already."""
        return self._recent.count(process) >= min(IN_VIEW_LINES, len(self._tails[process]))

    def _print(self, process: int, lines: list[bytes], now: float) -> bytes:
        self._tails[process].extend(lines)
        shown = lines if self._style.all_at_once else self._aside[process].take(lines, now)
        self._recent.extend([process] * len(shown))
        return self._draw([self._labelled(process, line) for line in shown])

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
        erase = _ERASE + _ERASE_ABOVE * self._drawn.count(b"\n") if self._drawn else b""
        self._drawn = drawn
        return erase + b"".join(lines) + drawn

    def _unfinished(self, columns: int) -> bytes:
        for process in self._order:
            shown = self._lines[process].shown
            if shown.strip():
                rows = (self._labels[process] + row for row in shown.split(b"\n"))
                return b"\n".join(clip(row, columns - 1) for row in rows)
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
