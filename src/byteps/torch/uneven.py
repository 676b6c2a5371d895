"""Uneven data with PyTorch: ``join``, and ``join_context``, after which all ranks have the same model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

import byteps
from byteps.errors import ConfigError
from byteps.torch.optimizer_state import broadcast_optimizer_state
from byteps.torch.parameters import broadcast_parameters
from byteps.worker import current

__all__ = ["join", "join_context"]


def join(device: int = -1) -> int:
    """``byteps.join``; ``device`` is Horovod's, and not needed."""
    return byteps.join()


@contextlib.contextmanager
def join_context(*trained: nn.Module | torch.optim.Optimizer) -> Iterator[None]:
    """Ranks inside may run out of data at different times: see ``byteps.join_context``.

        with bps.join_context(model, optimizer):
            for inputs, labels in loader:    # another number of batches on each rank
                optimizer.zero_grad()
                loss(model(inputs), labels).backward()
                optimizer.step()

    Gradients are averages over the ranks that still have data. At the end every rank gets the parameters and
    buffers of ``trained`` modules, and the state of ``trained`` optimizers, from the last rank that had data.
    """
    session = current.required("join_context")
    for each in trained:
        if not isinstance(each, (nn.Module, torch.optim.Optimizer)):
            raise ConfigError(f"join_context: {type(each).__name__}, expected modules and optimizers")
    before = session.joining
    if before is None:
        session.expect_uneven_data(True)
    try:
        yield
        last = byteps.join()
    finally:
        if before is None:
            session.expect_uneven_data(False)
    for index, each in enumerate(trained):
        if isinstance(each, nn.Module):
            broadcast_parameters(each.state_dict(), last, prefix=f"Joined.{index}.")
        else:
            broadcast_optimizer_state(each, last)
