"""Labels and progress displays of several processes on one screen, checked with a small terminal."""

from __future__ import annotations

import re
from collections import deque

import pytest

from byteps.launcher.aside import Aside, only_interrupted
from byteps.launcher.output import MAX_LINE_BYTES, MAX_ROWS, TAIL_LINES, Lines, Screen, Style, clip

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


# ---- lines that wait

TRACE = [b"Traceback (most recent call last):", b'  File "train.py", line 3', b"ValueError: loss is nan"]


def test_from_a_traceback_on_the_lines_of_one_process_wait() -> None:
    out = screen()
    data = b"one\n" + b"\n".join(TRACE) + b"\n"
    assert out.feed(W0, data, now=5.0) == b"[worker 0] one\n"
    assert out.feed(W0, b"two\n", now=6.0) == b""
    assert out.feed(W1, b"three\n", now=6.0) == b"[worker 1] three\n"
    assert (out.waiting, out.waiting_since()) == ({W0: [*TRACE, b"two"]}, 5.0)
    assert out.release(W1) == b""
    assert out.release(W0) == b"".join(b"[worker 0] %s\n" % line for line in (*TRACE, b"two"))
    assert (out.waiting, out.waiting_since()) == ({}, None)
    assert out.feed(W0, b"four\n", now=7.0) == b"[worker 0] four\n"


def test_nothing_waits_where_all_is_wanted() -> None:
    out = screen(Style(all_at_once=True))
    assert out.feed(W0, b"\n".join(TRACE) + b"\n").count(b"[worker 0]") == 3


def test_who_writes_a_lot_does_not_wait() -> None:
    aside = Aside()
    assert aside.take(TRACE, 0.0) == []
    lines = [b"x" * 1000] * 1000
    assert aside.take(lines, 0.0) == [*TRACE, *lines] and not aside.lines


@pytest.mark.parametrize(
    "line",
    [
        b"\x1b[31mTraceback (most recent call last):",
        b"Exception in thread Thread-1 (run):",
        b'  File "<string>", line 1',
        b"/usr/bin/python3.11: can't open file 'x.py': [Errno 2] No such file or directory",
        b"usage: train.py [-h] [--lr LR]",
        b"byteps server: PeerLostError: worker 1 was lost",
        b"2026-01-02 03:04:05.678 ERROR worker 0: worker 1 (host a, pid 7) was lost",
        b"ERROR server 1: worker 1 (host a, pid 7) was lost",
        b"2026-01-02 03:04:05.678 WARNING server 0: the last seconds of this process are in /tmp/x",
    ],
)
def test_what_waits(line: bytes) -> None:
    assert Aside().take([line], 0.0) == []


@pytest.mark.parametrize("line", [b"epoch 3", b"a Traceback (most recent call last)", b"ERROR: x", b""])
def test_what_does_not_wait(line: bytes) -> None:
    assert Aside().take([line], 0.0) == [line]


def test_last_lines_are_in_view_until_others_have_written_more() -> None:
    out = screen()
    assert out.in_view(W0)  # nothing to see
    out.feed(W0, b"1\n2\n3\n4\n")
    assert out.in_view(W0)
    out.feed(W1, b"x\n" * (TAIL_LINES - 3))
    assert out.in_view(W0)
    out.feed(W1, b"x\n")
    assert not out.in_view(W0)


@pytest.mark.parametrize(
    ("last", "only"),
    [
        ([b"KeyboardInterrupt"], True),
        ([b"KeyboardInterrupt: ", b"^C"], True),
        ([b"byteps.errors.PeerLostError: worker 1 has left the job"], True),
        ([b"ZeroDivisionError: division by zero"], False),
        ([b"KeyboardInterrupt", b"", b"During handling of the above ...:", b"KeyError: 1"], False),
    ],
)
def test_what_ctrl_c_alone_makes_of_a_process(last: list[bytes], only: bool) -> None:
    assert only_interrupted([*TRACE[:2], *last]) is only


# ---- living displays


def test_a_display_of_several_lines_stays_until_its_cursor_is_back() -> None:
    out = terminal()
    data = out.feed(W0, b"before\n\x1b[?25la 1\nb 1")
    assert shown(data) == ["[worker 0] before", "[worker 0] a 1", "[worker 0] b 1"]
    data = out.feed(W0, b"\r\x1b[2K\x1b[1A\x1b[2Ka 2\nb 2")
    assert data == b"\r\x1b[K\x1b[A\x1b[K[worker 0] a 2\n[worker 0] b 2"
    assert out.feed(W1, b"one\n") == b"\r\x1b[K\x1b[A\x1b[K[worker 1] one\n[worker 0] a 2\n[worker 0] b 2"
    assert out.feed(W0, b"\n\x1b[?25h").endswith(b"[worker 0] a 2\n[worker 0] b 2\n")
    assert out.feed(W0, b"after\n") == b"[worker 0] after\n"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_living_display_is_the_same_however_its_bytes_arrive(size: int) -> None:
    data = b"x\n\x1b[?25l\x1b[32ma 1\x1b[0m\nb 1\r\x1b[2K\x1b[1A\x1b[2Ka 2\nb 2\n\x1b[?25hy\nz"
    lines = Lines()
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert [*found, *lines.close()] == [b"x", b"a 2", b"b 2", b"y", b"z"]


def test_bars_below_each_other_that_do_not_hide_the_cursor() -> None:
    lines = Lines()
    assert lines.feed(b"\router 1\n\rinner 1\x1b[A") == [b"outer 1"]  # nobody knew yet that it is a display
    assert lines.feed(b"\router 2\n\rinner 9\x1b[A") == []
    assert lines.close() == [b"outer 2", b"inner 9"]


def test_a_display_without_end_is_bounded() -> None:
    lines = Lines()
    lines.feed(b"\x1b[?25l")
    found = [line for number in range(1000) for line in lines.feed(b"%d\n" % number)]
    assert len(lines.rows) <= MAX_ROWS and found[0] == b"0" and len(found) + len(lines.rows) == 1001
