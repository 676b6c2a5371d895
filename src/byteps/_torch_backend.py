"""Tells PyTorch of the backend ``byteps``; light, because every ``import torch`` calls it.

PyTorch 2.5 and later find ``register`` through the entry point ``torch.backends`` of this package; with 2.4,
or with TORCH_DEVICE_BACKEND_AUTOLOAD=0, ``import byteps.torch`` does it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register"]

NAME = "byteps"


def register() -> None:
    """Make ``torch.distributed.init_process_group("byteps")`` known; fine to call twice."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return  # a PyTorch without torch.distributed is no reason to fail
    kind: Any = dist.Backend
    if NAME not in kind.backend_list:
        kind.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(options: Any, backend_options: Any = None) -> Any:
    from byteps.torch import process_group

    return process_group.create(options, backend_options)
