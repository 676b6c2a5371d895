"""What DistributedOptimizer does besides stepping: checks that run one after the other on two ranks."""

from __future__ import annotations

import optimizer_exchange_checks
import optimizer_gradient_checks
import optimizer_refusal_checks
import optimizer_tool_checks
import torch
from optimizer_check import check

import byteps.torch as bps
from byteps.testing.checks import Checks

__all__ = ["MODULES", "check", "worker"]

MODULES = (  # they fill it
    optimizer_exchange_checks,
    optimizer_gradient_checks,
    optimizer_refusal_checks,
    optimizer_tool_checks,
)


def worker(compiles: bool) -> dict[str, str]:
    """The outcome of every check, as text; ``compiles``: also of torch.compile, which is slow."""
    torch.set_num_threads(1)
    bps.init()
    wanted = Checks({name: run for name, run in check.items() if compiles or "compiled" not in name})

    def enter() -> None:
        bps.barrier()
        torch.manual_seed(1)

    outcomes = wanted.run(enter)
    bps.barrier()
    return outcomes
