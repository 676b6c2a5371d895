"""What DistributedOptimizer refuses when it is made."""

from __future__ import annotations

import torch
from optimizer_check import check, raises, sgd, weight
from torch import nn

import byteps.torch as bps
from byteps.errors import ConfigError, DeclarationError


@check
def wrong_names_are_refused() -> None:
    one, two = weight(3), weight(4)
    with raises(ConfigError, "parameter 1 of group 0", "[4]", "named_parameters"):
        bps.DistributedOptimizer(torch.optim.SGD([one, two], lr=1.0), [("one", one)])
    with raises(ConfigError, "'same'", "[3]", "[4]"):
        bps.DistributedOptimizer(torch.optim.SGD([one, two], lr=1.0), [("same", one), ("same", two)])
    with raises(ConfigError, "Parameter", "model.named_parameters()"):
        bps.DistributedOptimizer(torch.optim.SGD([one], lr=1.0), [one])  # type: ignore[list-item]
    with raises(ConfigError, "already"):
        bps.DistributedOptimizer(sgd(one))
    with raises(TypeError, "device meta", "Gradient."):
        sgd(nn.Parameter(torch.empty(3, device="meta")))


@check
def models_that_differ_are_named_on_every_rank() -> None:
    with raises(DeclarationError, "p1", "[4]", "[5]", "worker 0", "worker 1"):
        sgd(weight(3), weight(4 + bps.rank()))
    with raises(DeclarationError, "used parameters", "[4]", "[5]"):
        sgd(*(weight() for _ in range(1 + bps.rank())))
