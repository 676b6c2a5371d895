"""It names the cause: real jobs that are slow for one known reason, and what their recordings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from byteps.observe.merging import load
from byteps.observe.verdict import Verdict, verdict
from byteps.observe.walk import walked
from byteps.testing import cluster

STEPS = 100
FIRST = 3  # the first steps of a job are not like the others


def train(late_rank: int, late_s: float, codec: str) -> int:
    """Steps of a loop that pushes two tensors; one rank may compute longer than the others."""
    import time

    import numpy as np

    import byteps as bps

    bps.init()
    params = {"compressor": codec} if codec else None
    gradients = [np.ones(count, np.float32) for count in (1_000, 200_000)]
    for _ in range(FIRST + STEPS):
        time.sleep(0.01 + (late_s if bps.rank() == late_rank else 0.0))
        handles = [
            bps.push_pull_async(each, name=f"t{each.size}", compression_params=params) for each in gradients
        ]
        for handle in handles:
            bps.synchronize(handle)
        bps.step()
    return bps.rank()


def judged(folder: Path, *, late_rank: int = -1, late_s: float = 0.0, codec: str = "", **env: str) -> Verdict:
    settings = {
        "BYTEPS_TRACE_ON": "1",
        "BYTEPS_TRACE_DIR": str(folder),
        "BYTEPS_TRACE_START_STEP": str(FIRST + 1),
        "BYTEPS_TRACE_END_STEP": str(FIRST + STEPS),
        "BYTEPS_ENABLE_IPC": "0",
        **env,
    }
    with cluster(
        train, workers=3, servers=1, args=(late_rank, late_s, codec), env=settings, deadline_s=90
    ) as job:
        job.wait()
    steps = walked(load([folder]))
    for each in steps:
        assert sum(each.parts.values()) == each.length_ns
    return verdict(steps)


def test_a_rank_that_computes_longer(tmp_path: Path) -> None:
    found = judged(tmp_path, late_rank=1, late_s=0.05)
    assert found.steps == STEPS
    assert (found.cause.kind, found.cause.rank) == ("rank", 1), found.text()
    assert found.cause_steps >= 95, found.text()
    assert found.cause_ms == pytest.approx(50, abs=15), found.text()
    assert found.without_ms == pytest.approx(found.step_ms - found.cause_ms)


SLOW = """
import time
import numpy as np
import byteps.compress

class Slow:
    def __init__(self, n, spec, seed, key):
        self.n = n
        self.max_bytes = 2 * n

    def encode(self, x, round):
        time.sleep(0.03)
        return x.astype(np.float16).tobytes()

    def decode(self, payload, round):
        return np.frombuffer(payload, np.float16).astype(np.float32)

byteps.compress.register("slow", Slow)
"""


def test_a_codec_that_is_too_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_codec.py").write_text(SLOW)
    env = {"BYTEPS_PLUGINS": "slow_codec", "PYTHONPATH": str(tmp_path), "BYTEPS_THREADPOOL_SIZE": "2"}
    found = judged(tmp_path, codec="slow", BYTEPS_MIN_COMPRESS_BYTES="100000", **env)
    # It runs on the server, too, where it is part of making the sum.
    assert found.cause.kind in ("codec", "server"), found.text()
    assert found.parts_ms["codec"] > 25, found.text()
