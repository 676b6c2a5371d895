"""``byteps.torch.empty``: the shapes and dtypes of PyTorch over memory from ``byteps.empty``."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import byteps  # noqa: E402
import byteps.torch as bps  # noqa: E402
from byteps.worker import current  # noqa: E402


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was asked of ``byteps.empty``, as weak references to what it gave."""
    given: list[Any] = []

    def empty(shape: tuple[int, ...], dtype: str) -> Any:
        array = np.zeros(shape, dtype)
        given.append(weakref.ref(array))
        return array

    monkeypatch.setattr(byteps, "empty", empty, raising=False)
    yield given


def test_shapes_as_torch_takes_them(arena: list[Any]) -> None:
    assert bps.empty(3, 5).shape == (3, 5)
    assert bps.empty((3, 5)).shape == bps.empty([3, 5]).shape == bps.empty(torch.Size([3, 5])).shape == (3, 5)
    assert bps.empty(()).shape == bps.empty().shape == ()
    assert bps.empty(7).dtype is torch.float32
    assert len(arena) == 7


def test_every_dtype_and_nothing_at_all(arena: list[Any]) -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.int64):
        tensor = bps.empty(2, 3, dtype=dtype)
        tensor.fill_(3)
        assert tensor.dtype is dtype and tensor.sum().item() == 18 and tensor.is_contiguous()
    assert bps.empty(0, 4).shape == (0, 4)
    assert len(arena) == 5  # nothing was asked for nothing


def test_like_another_tensor(arena: list[Any]) -> None:
    strided = torch.ones(4, 6, dtype=torch.bfloat16).t()
    alike = bps.empty_like(strided)
    assert (alike.shape, alike.dtype, alike.is_contiguous()) == ((6, 4), torch.bfloat16, True)


def test_the_memory_lives_as_long_as_a_tensor_over_it(arena: list[Any]) -> None:
    tensor = bps.empty(8)
    view = tensor[2:4]
    del tensor
    gc.collect()
    assert arena[0]() is not None
    view.fill_(1)
    del view
    gc.collect()
    assert arena[0]() is None


def test_results_are_in_the_arena_where_there_is_one(
    arena: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bps.init()
    try:
        assert bps.push_pull(torch.ones(3), name="t").tolist() == [1, 1, 1]
        assert arena == []
        monkeypatch.setattr(current.session, "has_arena", True)
        assert bps.push_pull(torch.ones(3), name="t").tolist() == [1, 1, 1]
        assert len(arena) == 1
    finally:
        bps.shutdown()
