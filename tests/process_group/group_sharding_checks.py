"""What FSDP2 and torch.distributed.checkpoint do with the backend."""

from __future__ import annotations

from typing import Any

import torch
from group_suite import Context, check, same, same_everywhere
from group_training_checks import TOLERANCE, network, train
from torch import nn

import byteps.torch as bps


@check
def fsdp2_replicates(c: Context) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (c.size, 1), mesh_dim_names=("replicate", "shard"))
    wanted = train(network(), c, whole=True)
    before = bps.counters()["operations"]
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    found = [parameter.full_tensor() for parameter in train(model, c, whole=False)]
    torch.testing.assert_close(found, wanted, **TOLERANCE)
    same_everywhere(found)
    assert bps.counters()["operations"] > before  # the replicate axis is all ranks: it goes by push-pull


@check
def fsdp2_shards(c: Context) -> None:
    from torch.distributed.fsdp import fully_shard

    wanted = train(network(), c, whole=True)
    model = fully_shard(network())
    found = [parameter.full_tensor() for parameter in train(model, c, whole=False)]
    torch.testing.assert_close(found, wanted, **TOLERANCE)


@check
def checkpoints(c: Context) -> None:
    import torch.distributed.checkpoint as checkpoint

    model = network()
    folder = str(c.folder / "checkpoint")
    checkpoint.save({"model": model.state_dict(), "step": 5}, checkpoint_id=folder)
    other = network()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    state: dict[str, Any] = {"model": other.state_dict(), "step": 0}
    checkpoint.load(state, checkpoint_id=folder)
    assert state["step"] == 5
    same(list(other.parameters()), list(model.parameters()))
    saved = checkpoint.async_save(model.state_dict(), checkpoint_id=folder + ".later")
    saved.result(timeout=30)
