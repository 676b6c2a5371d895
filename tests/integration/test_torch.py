"""``byteps.torch`` on two workers: models that start alike, and models that differ."""

from __future__ import annotations

from typing import Any

from byteps.testing import cluster

ENVIRONMENT = {"BYTEPS_OP_TIMEOUT_S": "30", "BYTEPS_CONNECT_TIMEOUT_S": "30"}


def model_of(seed: int) -> Any:
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 7))
    model[2].weight = torch.nn.Parameter(torch.randn(7, 7).t())  # not contiguous
    model[2].bias = model[0].bias  # shared
    model.register_buffer("mask", torch.rand(9) > 0.5)
    model.register_buffer("phase", torch.randn(4, dtype=torch.complex64).conj())
    model.register_buffer("short", torch.randint(-9, 9, (3, 5), dtype=torch.int16).t())
    model.register_buffer("flag", torch.tensor(bool(seed)))
    return model


def starts_alike(root: int) -> bool:
    import torch

    import byteps.torch as bps

    bps.init()
    model = model_of(seed=bps.rank())
    weight = model[0].weight
    bps.broadcast_parameters(model.state_dict(), root_rank=root)
    wanted = model_of(seed=root).state_dict()
    assert model[0].weight is weight  # in place
    return all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())


def test_models_start_alike_from_either_root() -> None:
    for root in (0, 1):
        with cluster(starts_alike, env=ENVIRONMENT, args=(root,)) as job:
            assert job.wait() == [True, True]


def differs() -> str:
    import torch

    import byteps.torch as bps
    from byteps.errors import DeclarationError

    bps.init()
    model = torch.nn.Linear(3, 4 + bps.rank())
    try:
        bps.broadcast_parameters(model.state_dict(), root_rank=0)
    except DeclarationError as error:
        bps.barrier()  # nobody leaves before everybody has been told
        return str(error)
    return ""


def test_models_that_differ_are_named() -> None:
    with cluster(differs, env=ENVIRONMENT) as job:
        for text in job.wait():
            assert "Parameter.weight" in text and "[4, 3]" in text and "[5, 3]" in text, text
            assert "worker 0" in text and "worker 1" in text
