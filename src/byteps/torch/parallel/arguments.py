"""The arguments of torch's DistributedDataParallel: which matter here, and which cannot be honoured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from byteps.errors import ConfigError
from byteps.worker.session import Session

__all__ = ["check", "device_of"]

# Arguments of torch's class that say how it should work inside: here nothing depends on them.
HARMLESS = {
    "dim",
    "bucket_cap_mb",
    "bucket_cap_mb_list",
    "find_unused_parameters",
    "check_reduction",
    "gradient_as_bucket_view",
    "static_graph",
    "skip_all_reduce_unused_params",
    "batched_grad_copy",
}


def device_of(device_ids: Sequence[int | torch.device] | None) -> torch.device | None:
    """Where the inputs are moved to; None: they stay where they are."""
    if not device_ids:
        return None
    first = device_ids[0]
    return torch.device("cuda", first) if isinstance(first, int) else torch.device(first)


def check(
    session: Session, others: Mapping[str, object], device_ids: Sequence[object] | None, process_group: Any
) -> None:
    """Raise ConfigError for what would matter and cannot be honoured."""
    if session.config.enable_async:
        raise ConfigError(
            "DistributedDataParallel: with BYTEPS_ENABLE_ASYNC=1 ranks exchange weights and not gradients; "
            "use DistributedOptimizer"
        )
    for name, value in others.items():
        if name not in HARMLESS and value is not None:
            raise ConfigError(f"DistributedDataParallel: {name}={value!r} cannot be honoured; leave it out")
    if device_ids and len(device_ids) != 1:
        raise ConfigError(
            f"DistributedDataParallel: device_ids={list(device_ids)!r}, expected one device; "
            "start one rank for each device"
        )
    if process_group is not None and process_group.size() != session.size:
        raise ConfigError(
            f"DistributedDataParallel: process_group has {process_group.size()} ranks, expected all "
            f"{session.size} of the job; a part of the job cannot average on its own"
        )
