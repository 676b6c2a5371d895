"""Labels and progress displays of several processes on one screen, checked with a small terminal."""

from __future__ import annotations

import re
from collections import deque

import pytest

from byteps.launcher.output import MAX_LINE_BYTES, TAIL_LINES, Lines, Screen, Style, clip

NAMES = ["server 0", "worker 0", "worker 1"]
ORDER = [1, 2, 0]  # workers first
SERVER, W0, W1 = range(3)


def screen(style: Style | None = None) -> Screen:
    return Screen(NAMES, ORDER, [deque(maxlen=TAIL_LINES) for _ in NAMES], style or Style())


def terminal(columns: int = 60) -> Screen:
    return screen(Style(columns=lambda: columns))


def shown(data: bytes) -> list[str]:
    """What a terminal shows: it knows new lines, carriage returns and "erase to the end of the line"."""
    rows, column = [""], 0
    for part in re.split(r"(\n|\r|\x1b\[K)", data.decode()):
        if part == "\n":
            rows.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            rows[-1] = rows[-1][:column]
        else:
            rows[-1] = rows[-1][:column] + part + rows[-1][column + len(part) :]
            column += len(part)
    return rows


# ---- lines


@pytest.mark.parametrize(
    ("data", "lines", "partial"),
    [
        (b"a\nb\n", [b"a", b"b"], b""),
        (b"a\nb", [b"a"], b"b"),
        (b"a\r\nb\r\n", [b"a", b"b"], b""),
        (b"\r 10%\r 20%\r100%\n", [b"100%"], b""),
        (b"\r 10%\r 20%", [], b" 20%"),
        (b"10%\r20%\r", [], b"20%"),
        (b"\r100%\r    \rdone\n", [b"done"], b""),
        (b"\n\n", [b"", b""], b""),
        ("ä\nö".encode(), ["ä".encode()], "ö".encode()),
        (b"\xff\xfe\n", [b"\xff\xfe"], b""),
    ],
)
def test_lines_however_the_bytes_arrive(data: bytes, lines: list[bytes], partial: bytes) -> None:
    at_once = Lines()
    assert at_once.feed(data) == lines
    one_by_one = Lines()
    found = [line for byte in data for line in one_by_one.feed(bytes([byte]))]
    assert found == lines
    assert at_once.shown == one_by_one.shown == partial
    assert at_once.close() == ([partial] if partial else [])


def test_a_progress_bar_does_not_grow_in_memory() -> None:
    lines = Lines()
    for step in range(10_000):
        assert lines.feed(b"\rstep %d" % step) == []
    assert lines.partial == b"step 9999"


def test_a_line_without_end_is_cut() -> None:
    lines = Lines()
    got = b"".join(line for _ in range(100) for line in lines.feed(b"x" * 10_000))
    assert len(lines.partial) <= MAX_LINE_BYTES
    assert len(got) + len(lines.partial) == 1_000_000


# ---- a file or a pipe


def test_a_file_gets_whole_labelled_lines_only() -> None:
    out = screen()
    assert out.feed(W0, b"hel") == b""
    assert out.feed(W1, b"one\n") == b"[worker 1] one\n"
    assert out.feed(W0, b"lo\nwor") == b"[worker 0] hello\n"
    assert out.note("bpslaunch: a\nb") == b"bpslaunch: a\nb\n"
    assert out.close(W0) == b"[worker 0] wor\n"
    assert out.close(W1) == b""


def test_the_tail_has_the_last_lines_with_the_label() -> None:
    out = screen()
    for number in range(50):
        out.feed(W1, b"line %d\n" % number)
    assert out.tail(W1) == b"".join(b"[worker 1] line %d\n" % n for n in range(30, 50))
    assert out.tail(W0) == b""


# ---- a terminal


def test_an_unfinished_line_is_shown_as_it_grows() -> None:
    out = terminal()
    data = out.feed(W0, b"loading")
    assert shown(data) == ["[worker 0] loading"]
    data += out.feed(W0, b" ...")
    assert shown(data) == ["[worker 0] loading ..."]
    data += out.feed(W0, b" done\n")
    assert shown(data) == ["[worker 0] loading ... done", ""]


def test_a_progress_bar_stays_at_the_bottom() -> None:
    out = terminal()
    data = b""
    for percent in range(0, 100, 10):
        data += out.feed(W0, b"\r%3d%%|####" % percent)
        assert shown(data)[-1] == f"[worker 0] {percent:3d}%|####"
        data += out.feed(W1, b"step %d\n" % percent)
        assert shown(data)[-1] == f"[worker 0] {percent:3d}%|####"
    data += out.note("bpslaunch: hello")
    data += out.feed(W0, b"\r100%|####\n")
    steps = [f"[worker 1] step {percent}" for percent in range(0, 100, 10)]
    assert shown(data) == [*steps, "bpslaunch: hello", "[worker 0] 100%|####", ""]


def test_a_shorter_text_leaves_nothing_of_a_longer_one() -> None:
    out = terminal()
    data = out.feed(W0, b"\ra long progress text") + out.feed(W0, b"\rshort")
    assert shown(data) == ["[worker 0] short"]


def test_a_bar_that_erases_itself_is_gone() -> None:
    out = terminal()
    data = out.feed(W0, b"\r 50%") + out.feed(W0, b"\r     \r") + out.feed(W1, b"next\n")
    assert shown(data) == ["[worker 1] next", ""]


def test_of_several_bars_that_of_worker_0_is_shown() -> None:
    out = terminal()
    data = out.feed(SERVER, b"s...") + out.feed(W1, b"\rone 10%")
    assert shown(data) == ["[worker 1] one 10%"]
    data += out.feed(W0, b"\rzero 10%") + out.feed(W1, b"\rone 20%")
    assert shown(data) == ["[worker 0] zero 10%"]
    data += out.feed(W0, b"\rzero 100%\n")
    assert shown(data) == ["[worker 0] zero 100%", "[worker 1] one 20%"]


def test_nothing_is_written_when_nothing_changes() -> None:
    out = terminal()
    out.feed(W0, b"\r 50%")
    assert out.feed(W0, b"\r 50%") == b""
    assert out.feed(W1, b"\r 60%") == b""


def test_a_line_that_would_wrap_is_clipped_while_unfinished_and_whole_at_the_end() -> None:
    out = terminal(columns=20)
    text = b"0123456789" * 4
    data = out.feed(W0, text)
    assert shown(data) == ["[worker 0] 01234567"]
    data += out.feed(W0, b"\n")
    assert shown(data) == ["[worker 0] " + text.decode(), ""]


def test_colours_take_no_room() -> None:
    assert clip(b"\x1b[32mabc\x1b[0mdef", 4) == b"\x1b[32mabc\x1b[0md"
    assert clip(b"\x1b[32mabc\x1b[0mdef", 2) == b"\x1b[32mab\x1b[0m"
    assert clip("äöü".encode(), 2) == "äö".encode()


def test_labels_have_colours_and_no_colour_leaks_into_the_next_line() -> None:
    out = screen(Style(colour=True))
    first, second = out.feed(W0, b"\x1b[31mred\n"), out.feed(W1, b"plain\n")
    assert first.startswith(b"\x1b[") and first.endswith(b"red\x1b[0m\n")
    assert second.endswith(b"\x1b[0m plain\n")
    assert first.split(b"m[")[0] != second.split(b"m[")[0]
