"""Tensors of a device: which way they take, and how they are cut into parts with remainders."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from byteps.torch.device.pipeline import divide, padded  # noqa: E402
from byteps.torch.device.route import Route, choose, chunk, part  # noqa: E402
from byteps.torch.device.staging import Staging  # noqa: E402


def test_the_way_depends_on_all_machines() -> None:
    assert choose([4], serverless=True) is Route.MACHINE
    assert choose([4], serverless=False) is Route.RAILS
    assert choose([2, 2, 2], serverless=False) is Route.RAILS
    assert choose([1, 2, 3], serverless=False) is Route.LEADER


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("elements", [1, 2, 7, 8, 9, 1000])
def test_parts_cover_every_element_once(elements: int, ranks: int) -> None:
    parts = [part(elements, ranks, rank) for rank in range(ranks)]
    size = chunk(elements, ranks)
    covered = [rank * size + index for rank in range(ranks) for index in range(parts[rank])]
    assert covered == list(range(elements))
    assert all(0 <= count <= size for count in parts)
    assert size * ranks - elements < ranks  # no more padding than it takes


def test_padding_adds_nothing_and_copies_only_when_needed() -> None:
    flat = torch.arange(5.0)
    assert padded(flat, 5) is flat
    assert padded(flat, 8).tolist() == [0, 1, 2, 3, 4, 0, 0, 0]


def test_averages_of_integers_are_rounded_toward_zero() -> None:
    whole, halves = torch.tensor([-7, 7]), torch.tensor([-7.0, 7.0])
    divide(whole, 2)
    divide(halves, 2)
    assert (whole.tolist(), halves.tolist()) == ([-3, 3], [-3.5, 3.5])


def test_staging_uses_memory_again() -> None:
    staging = Staging(pinned=False)
    small, large = staging.take(torch.empty(3)), staging.take(torch.empty(100, dtype=torch.bfloat16))
    assert (small.shape, small.dtype, large.dtype) == ((3,), torch.float32, torch.bfloat16)
    addresses = {small.data_ptr(), large.data_ptr()}
    staging.give(small)
    staging.give(large)
    again = staging.take(torch.empty(4, dtype=torch.uint8))
    assert (again.data_ptr(), again.numel()) == (small.data_ptr(), 4)
    larger = staging.take(torch.empty(1000))  # takes the place of one that was too small
    assert larger.data_ptr() not in addresses
    staging.give(larger)
    staging.give(again)
    assert len(staging._free) == 2
