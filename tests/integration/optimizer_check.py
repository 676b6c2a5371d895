"""What the checks of DistributedOptimizer share. Gradients are 4 ** rank, 1 and 4: their average is 2.5."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

import byteps.torch as bps
from byteps.testing.checks import Checks

check = Checks()  # they run on two ranks; see optimizer_behaviour_job.py


def mine() -> float:
    return 4.0 ** bps.rank()


def weight(*shape: int, value: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.full(shape or (3,), value))


def sgd(*parameters: nn.Parameter, **options: Any) -> Any:
    named = [(f"p{i}", parameter) for i, parameter in enumerate(parameters)]
    return bps.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named, **options)


@contextlib.contextmanager
def raises(kind: type[Exception], *words: str) -> Any:
    try:
        yield
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise AssertionError(f"expected {kind.__name__}")
