"""What tunes speed stands in one place of the core, and what refuses bytes in another."""

from __future__ import annotations

import re

from looks import ROOT

NATIVE = ROOT / "native"
TUNING = NATIVE / "base" / "tuning.h"
LIMITS = NATIVE / "wire" / "limits.h"
CONSTANT = re.compile(r"constexpr \w+ (k\w+) = ([^;]+);")


def constants(text: str) -> dict[str, str]:
    return dict(CONSTANT.findall(text))


def test_no_number_has_two_names() -> None:
    assert not set(constants(TUNING.read_text())) & set(constants(LIMITS.read_text()))


def test_limits_refuse() -> None:
    assert not [name for name in constants(LIMITS.read_text()) if not re.match(r"kM(ax|in)|kAnswer", name)]


def bare(text: str) -> list[str]:
    """Numbers without a comment above them; several may share one."""
    found = []
    before = ""
    for line in text.splitlines():
        if line.startswith("constexpr") and not before:
            found.append(line)
        if not line.startswith("constexpr"):
            before = line
    return found


def test_every_number_says_where_it_comes_from() -> None:
    assert bare(TUNING.read_text()) == []
    two = "// Two of them.\nconstexpr int kA = 1;\nconstexpr int kB = 1;\n"
    assert bare(two + "\nconstexpr int kC = 1;\n") == ["constexpr int kC = 1;"]


# Sizes of pieces and the like are easily written once more; times of 10 ms and 100 ms are many things.
def test_no_size_is_written_again() -> None:
    sizes = {
        text
        for text in constants(TUNING.read_text()).values()
        if re.fullmatch(r"\d+ \* 1024( \* 1024)?", text)
    }
    assert "384 * 1024" in sizes
    again = [
        f"{path.relative_to(ROOT)}: {name} = {text} is a number of base/tuning.h"
        for path in sorted(NATIVE.rglob("*"))
        if path.suffix in (".h", ".cc") and path not in (TUNING, LIMITS) and "tests" not in path.parts
        for name, text in constants(path.read_text()).items()
        if text in sizes
    ]
    assert not again, "\n" + "\n".join(again)
