"""What ``bps doctor`` finds: a mark, a sentence and, where something is wrong, a remedy. Data and text."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from byteps.observe.text import clean

__all__ = ["Finding", "Mark", "as_json", "fail", "merged", "ok", "table", "verdict", "warn"]


class Mark(str, enum.Enum):
    """How bad it is: jobs run; jobs run, but worse than they could; jobs fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    mark: Mark
    text: str
    remedy: str = ""
    where: str = ""  # the machine or member, where several were looked at

    def __post_init__(self) -> None:
        if self.mark is not Mark.OK and not self.remedy:
            raise ValueError(f"{self.check}: a finding that is not good needs a remedy")


def ok(check: str, text: str) -> Finding:
    """All is well."""
    return Finding(check, Mark.OK, text)


def warn(check: str, text: str, remedy: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding(check, Mark.WARN, text, remedy)


def fail(check: str, text: str, remedy: str) -> Finding:
    """Jobs fail because of this."""
    return Finding(check, Mark.FAIL, text, remedy)


def verdict(findings: Iterable[Finding]) -> int:
    """The exit status: 1 when something makes jobs fail."""
    return int(any(finding.mark is Mark.FAIL for finding in findings))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings of several machines: the same words once, with all the places where they hold."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=""), []).append(finding.where)
    order = {finding.check: None for finding in places}
    ranked = {check: number for number, check in enumerate(order)}
    together = [
        replace(finding, where=", ".join(dict.fromkeys(filter(None, where))))
        for finding, where in places.items()
    ]
    return sorted(together, key=lambda finding: ranked[finding.check])


def table(findings: Sequence[Finding], *, colour: bool = False) -> str:
    """A line for each, and a line for each remedy; then how many of which kind. Other members wrote some."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        where = f" [{clean(finding.where)}]" if finding.where else ""
        mark = _coloured(finding.mark) if colour else f"{finding.mark.value:4}"
        lines.append(f"{mark}  {clean(finding.check):{width}}  {clean(finding.text)}{where}")
        if finding.remedy:
            lines.append(f"      {'':{width}}  remedy: {clean(finding.remedy)}")
    counts = {mark: sum(finding.mark is mark for finding in findings) for mark in Mark}
    lines.append(
        f"{counts[Mark.OK]} ok, {_counted(counts[Mark.WARN], 'warning')}, "
        f"{_counted(counts[Mark.FAIL], 'failure')}: "
        + ("a job would fail" if counts[Mark.FAIL] else "a job can run")
    )
    return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _coloured(mark: Mark) -> str:
    number = {Mark.OK: 32, Mark.WARN: 33, Mark.FAIL: 31}[mark]
    return f"\x1b[{number}m{mark.value:4}\x1b[0m"


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [{**asdict(finding), "mark": finding.mark.value.lower()} for finding in findings]
