"""The entry point ``torch.backends``: PyTorch 2.5 and later call it at every ``import torch``.

It stands beside ``byteps.torch`` and not in it: loading that would load the whole plugin. With PyTorch 2.4,
or with TORCH_DEVICE_BACKEND_AUTOLOAD=0, ``import byteps.torch`` does the same.
"""

from __future__ import annotations

from typing import Any

from byteps.plugin.torch_registry import make_known

__all__ = ["register"]


def register() -> None:
    """Make ``torch.distributed.init_process_group("byteps")`` known; fine to call twice."""
    make_known(_create)


def _create(options: Any, backend_options: Any = None) -> Any:
    from byteps.torch import process_group  # when a group is made, and not at every `import torch`

    return process_group.create(options, backend_options)
