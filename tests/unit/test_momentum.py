"""Momentum in the core: equal to its reference, to torch's SGD in a job of one, and part of the state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import byteps
import byteps.torch as bps
from byteps import _core
from byteps.compress.reference.momentum import nesterov
from byteps.tensor import dtypes


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("n", [1, 7, 5000])
def test_the_core_is_its_reference(dtype: str, in_place: bool, n: int) -> None:
    momentum = _core.Momentum(dtypes.NUMBERS[dtype], n)
    wide = np.float64 if dtype == "float64" else np.float32
    m = np.zeros(n, wide)
    for step in range(4):
        g = np.random.default_rng(step).standard_normal(n).astype(dtype)
        if dtype == "float64":
            m = 0.9 * m + g
            expected = g + 0.9 * m
        else:
            m, expected = nesterov(m, g.astype(np.float32), 0.9)
        out = g if in_place else np.empty_like(g)
        momentum.apply(g.ctypes.data, out.ctypes.data, 0.9)
        assert out.tobytes() == expected.astype(dtype).tobytes()
    assert momentum.memory[1] == n * np.dtype(wide).itemsize


@pytest.fixture
def job() -> None:
    bps.init()
    yield
    bps.shutdown()


def _train(optimizer: torch.optim.Optimizer, weight: torch.nn.Parameter, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        torch.manual_seed(step)
        (torch.randn(50) * weight + weight**2).sum().backward()
        optimizer.step()


def test_a_job_of_one_has_it_too(job: None) -> None:
    """Tolerance: torch may fuse a product and a sum that the core rounds one by one."""
    found = []
    for params in (None, {"momentum": "nesterov"}, {"compressor": "onebit", "momentum": "nesterov"}):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 50))
        plain = torch.optim.SGD([weight], lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)
        optimizer = bps.DistributedOptimizer(plain, [("w", weight)], compression_params=params)
        _train(optimizer, weight, range(10))
        found.append(weight.detach().clone())
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[2], found[1], rtol=0, atol=0)  # one machine: nothing is compressed


def test_its_state_is_saved_and_restored(job: None, tmp_path: object) -> None:
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 50))
    plain = torch.optim.SGD([weight], lr=0.01, momentum=0.9)
    optimizer = bps.DistributedOptimizer(plain, [("w", weight)], compression_params={"momentum": "nesterov"})
    _train(optimizer, weight, range(3))
    path = f"{tmp_path}/state.pt"
    torch.save({"optimizer": optimizer.state_dict(), "weight": weight.detach().clone()}, path)
    _train(optimizer, weight, range(3, 6))
    expected = weight.detach().clone()
    saved = torch.load(path, weights_only=True)
    optimizer.load_state_dict(saved["optimizer"])
    with torch.no_grad():
        weight.copy_(saved["weight"])
    _train(optimizer, weight, range(3, 6))
    assert torch.equal(weight, expected)
    wrong = {
        **saved["optimizer"],
        "byteps": {"w": {**saved["optimizer"]["byteps"]["w"], "momentum": torch.ones(3)}},
    }
    with pytest.raises(byteps.ConfigError, match=r"momentum of .*w has 12 bytes, expected 200"):
        optimizer.load_state_dict(wrong)


def test_arrays_have_it_too(job: None) -> None:
    g = np.linspace(-1, 1, 20, dtype=np.float32)
    kept = g.copy()
    byteps.compress.set_rates(momentum=0.5)
    m = np.zeros(20, np.float32)
    for _ in range(3):
        m, expected = nesterov(m, g, 0.5)
        result = byteps.push_pull(g, name="g", compression_params={"momentum": "nesterov"})
        assert result.tobytes() == expected.tobytes() and g.tobytes() == kept.tobytes()
