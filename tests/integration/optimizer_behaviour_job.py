"""What DistributedOptimizer does besides stepping: checks that run one after the other on two ranks."""

from __future__ import annotations

import traceback

import optimizer_exchange_checks
import optimizer_gradient_checks
import optimizer_refusal_checks
import optimizer_tool_checks
import torch
from optimizer_check import CHECKS

import byteps.torch as bps

__all__ = ["CHECKS", "MODULES", "worker"]

MODULES = (  # they fill CHECKS
    optimizer_exchange_checks,
    optimizer_gradient_checks,
    optimizer_refusal_checks,
    optimizer_tool_checks,
)


def worker(compiles: bool) -> dict[str, str]:
    """The outcome of every check, as text; ``compiles``: also of torch.compile, which is slow."""
    torch.set_num_threads(1)
    bps.init()
    outcomes = {}
    for name, run in CHECKS.items():
        if "compiled" in name and not compiles:
            continue
        bps.barrier()  # ranks enter a check together even when the last one failed on some of them
        torch.manual_seed(1)
        try:
            run()
            outcomes[name] = "ok"
        except Exception:
            outcomes[name] = traceback.format_exc()
    bps.barrier()
    return outcomes
