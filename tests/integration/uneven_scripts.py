"""A new user's script whose ranks have different numbers of batches; ``sys.argv[1]`` says how it copes."""

import contextlib
import sys

import torch
from torch import nn

import byteps.torch as bps

bps.init()
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = bps.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
bps.broadcast_parameters(model.state_dict(), root_rank=0)
batches = 10 if bps.rank() == 0 else 12

context = bps.join_context(model, optimizer) if sys.argv[1] == "context" else contextlib.nullcontext()
with context:
    for _ in range(batches):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    if sys.argv[1] == "join":
        last = bps.join()
        bps.broadcast_parameters(model.state_dict(), root_rank=last)
        print(f"rank {last} was the last")
total = bps.push_pull(model.weight.detach(), average=False, name="weights")
assert torch.equal(total, model.weight * bps.size()), "the ranks have different parameters"
print(f"rank {bps.rank()} is done")
