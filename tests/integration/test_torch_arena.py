"""``byteps.torch`` on a machine with several ranks: tensors in shared memory, and results there."""

from __future__ import annotations

from typing import Any

import pytest

from byteps.testing import cluster

pytest.importorskip("torch")

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def sums_in_the_arena() -> dict[str, Any]:
    import torch

    import byteps.torch as bps

    bps.init()
    total = sum(4**rank for rank in range(bps.size()))
    right = {}
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = bps.empty(3, 1001, dtype=dtype)
        tensor.fill_(4 ** bps.rank())
        out = bps.push_pull(tensor, average=False, name=f"out.{dtype}")
        right[f"out {dtype}"] = bool((out == total).all()) and bool((tensor == 4 ** bps.rank()).all())
        again = bps.push_pull(out, average=True, name=f"again.{dtype}")  # out lies in the arena itself
        right[f"again {dtype}"] = bool((again == total).all())
        bps.push_pull_inplace(tensor, average=False, name=f"in.{dtype}")
        right[f"in {dtype}"] = bool((tensor == total).all())
    bps.barrier()
    return right


@pytest.mark.parametrize("nproc", [1, 2])
def test_sums_are_exact_with_and_without_other_ranks(nproc: int) -> None:
    with cluster(sums_in_the_arena, nproc=nproc, env=ENVIRONMENT) as job:
        for right in job.wait():
            assert all(right.values()), right
