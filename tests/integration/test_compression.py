"""Compression through the PyTorch plugin and with codecs of the user's own, in real jobs."""

from __future__ import annotations

import functools
from pathlib import Path

import compression_job
import pytest

from byteps.testing import ClusterError, cluster

ENVIRONMENT = {
    "BYTEPS_MIN_COMPRESS_BYTES": "0",
    "BYTEPS_PARTITION_BYTES": "16384",
    "BYTEPS_OP_TIMEOUT_S": "30",
    "BYTEPS_PLUGINS": "user_codecs",
    "PYTHONPATH": str(Path(__file__).parent),
}


@functools.cache
def outcomes() -> list[dict[str, str]] | ClusterError:
    with cluster(compression_job.worker, workers=2, servers=1, env=ENVIRONMENT, deadline_s=110) as job:
        try:
            return job.wait()
        except ClusterError as error:
            return error


@pytest.mark.parametrize("check", compression_job.CHECKS)
def test_compression(check: str) -> None:
    found = outcomes()
    if isinstance(found, ClusterError):
        pytest.fail(str(found), pytrace=False)
    for rank, outcome in enumerate(found):
        assert outcome[check] == compression_job.OK, f"rank {rank}: {outcome[check]}"
