"""Compression through the PyTorch plugin and with codecs of the user's own, in real jobs."""

from __future__ import annotations

import functools
from pathlib import Path

import compression_job
import pytest

from byteps.testing import ClusterError
from byteps.testing.checks import outcomes_of, require

ENVIRONMENT = {
    "BYTEPS_MIN_COMPRESS_BYTES": "0",
    "BYTEPS_PARTITION_BYTES": "16384",
    "BYTEPS_OP_TIMEOUT_S": "30",
    "BYTEPS_PLUGINS": "user_codecs",
    "PYTHONPATH": str(Path(__file__).parent),
}


@functools.cache
def outcomes() -> list[dict[str, str]] | ClusterError:
    return outcomes_of(compression_job.worker, workers=2, servers=1, env=ENVIRONMENT, deadline_s=110)


@pytest.mark.parametrize("check", compression_job.check)
def test_compression(check: str) -> None:
    require(outcomes(), check)
