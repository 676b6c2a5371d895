"""The state of the codecs of a ``GradientExchange`` as tensors, for ``state_dict()`` and for broadcasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from byteps.worker import codec_state

if TYPE_CHECKING:
    from byteps.torch.gradients import GradientExchange

__all__ = ["KEY", "load", "save", "take_over"]

KEY = "byteps"  # in the state_dict() of an optimizer


def save(exchange: GradientExchange) -> dict[str, Any]:
    """By the name of each parameter whose gradient has a state in the core."""
    saved = {}
    for name, declared in exchange.declared():
        state = codec_state.take(declared)
        if state is not None:
            momentum = state["momentum"]
            saved[name] = {
                "steps": state["steps"],
                "lr": state["lr"],
                "momentum": None if momentum is None else torch.from_numpy(momentum),
                "errors": {part: torch.from_numpy(error) for part, error in state["errors"].items()},
            }
    return saved


def load(exchange: GradientExchange, saved: dict[str, Any]) -> None:
    """Continue from there. Names that are not in it keep what they have."""
    for name, declared in exchange.declared():
        state = saved.get(name)
        if state is not None:
            codec_state.restore(declared, _arrays(state))


def take_over(exchange: GradientExchange, root: dict[str, Any]) -> None:
    """Be where another rank is, without its errors: they are its own.

    A rank that has come as far as the root keeps its own momentum and errors.
    """
    for name, declared in exchange.declared():
        state = root.get(name)
        if state is None or declared.native is None or declared.native.steps == state["steps"]:
            continue
        fresh = codec_state.take(declared)
        if fresh is not None:
            for error in fresh["errors"].values():
                error.fill(0)
            codec_state.restore(declared, {**_arrays({**state, "errors": {}}), "errors": fresh["errors"]})


def _arrays(state: dict[str, Any]) -> codec_state.State:
    momentum = state["momentum"]
    return {
        "steps": state["steps"],
        "lr": state["lr"],
        "momentum": None if momentum is None else momentum.cpu().numpy(),
        "errors": {part: error.cpu().numpy() for part, error in state["errors"].items()},
    }
