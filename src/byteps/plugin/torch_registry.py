"""How PyTorch is told of the backend ``byteps``; light, because every ``import torch`` comes here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["make_known"]

NAME = "byteps"


def make_known(create: Callable[..., Any]) -> None:
    """Let ``torch.distributed.init_process_group("byteps")`` call ``create``; fine to call twice."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return  # a PyTorch without torch.distributed is no reason to fail
    kind: Any = dist.Backend
    if NAME not in kind.backend_list:
        kind.register_backend(NAME, create, extended_api=True, devices=["cpu"])
