"""Asynchronous training in a job of one: the stored value behaves as a server's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import byteps


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    byteps.shutdown()
    monkeypatch.setenv("BYTEPS_ENABLE_ASYNC", "1")
    byteps.init()
    yield
    byteps.shutdown()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_contributions_add_up_on_what_was_broadcast(dtype: str) -> None:
    base, step = np.array([10, 20, 30], dtype), np.array([1, 2, 3], dtype)
    byteps.broadcast(base, 0, name="w")
    for times in (1, 2, 3):
        assert byteps.push_pull(step, name="w").tolist() == (base + times * step).tolist()


def test_the_first_contribution_is_the_base_value() -> None:
    first = np.array([-0.0, 5.0], np.float32)
    assert byteps.push_pull(first, name="w").tobytes() == first.tobytes()
    assert byteps.push_pull(first, name="w").tolist() == [0.0, 10.0]


def test_bfloat16_is_rounded_to_nearest_even() -> None:
    torch = pytest.importorskip("torch")
    import byteps.torch as bps

    a = torch.randn(1000, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    b = torch.randn(1000, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    b[0], a[1] = float("nan"), float("inf")
    bps.push_pull(a, name="w")
    got = bps.push_pull(b, name="w")
    wanted = (a.float() + b.float()).to(torch.bfloat16)
    assert torch.equal(got.nan_to_num(7.0), wanted.nan_to_num(7.0))
    assert got[0].isnan() and got[1].isinf()


def test_a_name_is_required() -> None:
    for call in (lambda: byteps.push_pull(b"x"), lambda: byteps.broadcast(b"x", 0)):
        with pytest.raises(byteps.ConfigError, match=r"without a name.*BYTEPS_ENABLE_ASYNC=1"):
            call()
