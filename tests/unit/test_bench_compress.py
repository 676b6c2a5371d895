"""The pure parts of ``bps bench compress``: which ratios it reports, and which goals stand beside them."""

from __future__ import annotations

from byteps.tools.bench.compress_cases import CODECS, cases
from byteps.tools.bench.compress_goals import GOALS, LIBRARIES, MEMCPY, lines, ours
from byteps.tools.bench.local_goals import row, verdicts
from byteps.tools.bench.series import Series


def _series(**times_s: float) -> list[Series]:
    return [
        Series(name.replace("_", " "), 1, 0, 4_096_000, 1, samples_s=[t] * 3) for name, t in times_s.items()
    ]


def test_ratios_and_their_goals() -> None:
    series = [
        *_series(memcpy=1.0),
        *(Series(name, 1, 0, 4_096_000, 1, samples_s=[0.5] * 3) for name in ("topk 0.001: compress",)),
        *(Series(name, 1, 0, 4_096_000, 1, samples_s=[5.0] * 3) for name in ("torch, topk 0.001: compress",)),
    ]
    found = lines(series)
    assert [row(line)[:3] + row(line)[4:] for line in found] == [
        ["topk 0.001: compress", "memcpy", "2.00 x", "0.3 x", "pass"],
        ["topk 0.001: compress", "torch, topk 0.001: compress", "10.00 x", "15 x", "FAIL"],
    ]
    assert [verdict.reached for verdict in verdicts(found)] == [True, False]


def test_without_memcpy_there_is_nothing_to_compare_with() -> None:
    assert lines([Series("fp16: compress", 1, 0, 4_096_000, 1, samples_s=[1.0])]) == []


def test_every_goal_and_every_peer_is_measured() -> None:
    made = list(cases(4096, 2))
    names = {case.name for case in made}
    assert {name for pair in GOALS for name in pair} <= names
    own = ours([Series(name, 1, 0, 4096, 1) for name in names])
    assert len(own) == 4 * len(CODECS) and len(names) == len(made)
    others = names - set(own) - {MEMCPY}
    assert others and all(name.partition(", ")[0] in LIBRARIES for name in others)
    assert {name.partition(", ")[2] for name in others} <= set(own)  # nothing stands beside nothing
    assert made[0].name == MEMCPY


def test_every_case_runs() -> None:
    for case in cases(4099, 2):
        assert case.timed_s(3) >= 0
