"""``broadcast_optimizer_state``: the root's momenta, step counts and settings, on every rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from byteps.errors import ConfigError
from byteps.torch import codec_state
from byteps.torch.objects import broadcast_tree
from byteps.worker import current

__all__ = ["broadcast_optimizer_state"]


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: object = None) -> None:
    """Give the optimizer of every rank the state and the settings of the root's, exactly.

        if bps.rank() == 0:
            optimizer.load_state_dict(checkpoint["optimizer"])
        bps.broadcast_optimizer_state(optimizer, root_rank=0)

    Works for every optimizer, also if only the root has state: what another rank has is replaced. Tensors
    are broadcast, plain values and the structure travel beside them without pickle; a custom optimizer with
    anything else in its state gets an UnsupportedTensorError that names it. Raises ConfigError where the
    optimizers have different groups. ``model`` is what Horovod takes for optimizers without state; nothing
    needs it here.
    """
    session = current.required("broadcast_optimizer_state")
    groups = optimizer.param_groups
    exchange = getattr(optimizer, "_exchange", None)
    if exchange is not None and exchange.rates is None:
        exchange = None
    parameters = [parameter for group in groups for parameter in group["params"]]
    number_of = {parameter: number for number, parameter in enumerate(parameters)}
    own: dict[str, Any] = {
        "class": type(optimizer).__name__,
        "sizes": [len(group["params"]) for group in groups],
        "settings": [{key: value for key, value in group.items() if key != "params"} for group in groups],
        # Keys are parameters, by their number here, or whatever else a custom optimizer takes.
        "state": [
            (number_of[key], None, value) if isinstance(key, Tensor) else (None, key, value)
            for key, value in optimizer.state.items()
        ],
        # Momentum that the core applies takes the place of the optimizer's.
        "codecs": {} if exchange is None else codec_state.save(exchange),
    }
    for state in own["codecs"].values():
        state["errors"] = {}  # what a rank has not sent yet is its own
    device = parameters[0].device if parameters else torch.device("cpu")
    root = broadcast_tree(
        own,
        root_rank,
        "optimizer",
        # Step counts live on the CPU whatever the parameters do; everything else lives with the parameters.
        device_of=lambda kind: torch.device("cpu") if kind == "cpu" else device,
    )
    for what in ("class", "sizes"):
        if root[what] != own[what]:
            raise ConfigError(
                f"broadcast_optimizer_state: the {what} of the optimizer here is {own[what]!r}, on rank "
                f"{root_rank} it is {root[what]!r}; make the same optimizer on every rank"
            )
    if session.rank == root_rank:
        return
    if exchange is not None:
        codec_state.take_over(exchange, root["codecs"])
    for group, settings in zip(groups, root["settings"], strict=True):
        for key in [key for key in group if key != "params" and key not in settings]:
            del group[key]
        group.update(settings)
    optimizer.state.clear()
    for number, key, value in root["state"]:
        optimizer.state[key if number is None else parameters[number]] = value
